"""A collective that only rank 0 reaches.

As written, rank 0 makes the call and then goes on to the next step together with the others; as fixed, all ranks make
it. The lonely call waits for partners, or pairs up with the *next* collective of the others: the rank that stands at
the end of the day need not be the one that made the mistake.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_ALONE = Expect((Kind.STALL,), r"distributed_c10d\.py")
_PAIRED = Expect((Kind.STALL, Kind.SIGNAL, Kind.RAISE), r"distributed_c10d|SIGABRT|Connection|mismatch")

EXPERIMENT = Experiment(
    name="collective-under-rank-guard",
    summary="rank 0 makes a collective call that the other ranks do not make",
    rules=("DSL201",),
    expect=_ALONE,
    cases=(
        Case("barrier", {"op": "barrier", "then": ""}),
        Case("all_reduce", {"op": "all_reduce", "then": ""}),
        Case("broadcast", {"op": "broadcast", "then": ""}),
        Case("all_gather_object", {"op": "all_gather_object", "then": ""}),
        Case("barrier-then-all_reduce", {"op": "barrier", "then": "all_reduce"}, _PAIRED),
        Case("broadcast-then-barrier", {"op": "broadcast", "then": "barrier"}, _PAIRED),
        Case("paired", {"op": "paired", "then": ""}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_CALLS = {
    "barrier": "barrier", "monitored_barrier": "barrier", "all_reduce": "all_reduce", "broadcast": "broadcast",
    "all_gather_object": "all_gather_object", "broadcast_object_list": "broadcast",
}  # fmt: skip


def written(rank: RankApi) -> Json:
    """Rank 0 calls, the others do not (control ``paired``: every rank does, on its own path)."""
    rank.init()
    if rank.index == 0:
        _call(rank, rank.params["op"])
    elif rank.params["op"] == "paired":
        _call(rank, "paired")
    rank.mark("past the guard")
    return _call(rank, rank.params["then"])


def fixed(rank: RankApi) -> Json:
    """All ranks call."""
    rank.init()
    _call(rank, rank.params["op"])
    rank.mark("past the call")
    return _call(rank, rank.params["then"])


def _call(rank: RankApi, op: str) -> Json:
    import torch
    import torch.distributed as dist

    tensor = torch.ones(4, device=rank.device) * (rank.index + 1)
    if op in ("barrier", "paired"):
        dist.barrier()
    elif op == "all_reduce":
        dist.all_reduce(tensor)
    elif op == "broadcast":
        dist.broadcast(tensor, src=0)
    elif op == "all_gather_object":
        dist.all_gather_object([None] * rank.world, {"rank": rank.index})
    return tensor.tolist()


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call that the finding names, when this file knows it."""
    for name, op in _CALLS.items():
        if subject.finding.fact("collective") == name:
            return {"op": op} if case.params["op"] == op else None
    return None
