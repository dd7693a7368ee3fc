"""A collective on a tensor of the host, in a group whose only backend is for tensors on GPUs.

NCCL needs GPUs. What refuses the tensor is the group, before any backend: so the group gets one backend, gloo, for the
device type `cuda` alone, as `"nccl"` means NCCL for `cuda` alone. As fixed, there is a backend for each device type.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="host-tensor-over-nccl",
    summary="a group with a backend for GPUs alone refuses a tensor of the host",
    flavour="torch",
    rules=("DSL602", "DSL614"),
    expect=Expect((Kind.RAISE,), r"No backend type associated with device type cpu"),
    cases=(
        Case("all-reduce", {"call": "all_reduce", "backend": "cuda:gloo"}),
        Case("broadcast", {"call": "broadcast", "backend": "cuda:gloo"}),
        Case("both-backends", {"call": "all_reduce", "backend": "cpu:gloo,cuda:gloo"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The group as the case makes it."""
    return _summed(rank, str(rank.params["backend"]))


def fixed(rank: RankApi) -> Json:
    """A backend for each device type."""
    return _summed(rank, "cpu:gloo,cuda:gloo")


def _summed(rank: RankApi, backend: str) -> Json:
    import torch
    import torch.distributed as dist

    dist.init_process_group(backend, store=rank.store(), rank=rank.index, world_size=rank.world)
    rank.mark("process group ready")
    total = torch.tensor([1.0])
    if rank.params["call"] == "broadcast":
        dist.broadcast(total, src=0)
    else:
        dist.all_reduce(total)
    return {"total": total.item()}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call of the finding where a case has it."""
    finding = subject.finding
    # The gather of a Trainer is refused as an `all_reduce` is.
    call = "all_reduce" if finding.fact("kind") == "host" else finding.fact("call")
    return {"call": call} if case.name != "both-backends" and call == case.params["call"] else None
