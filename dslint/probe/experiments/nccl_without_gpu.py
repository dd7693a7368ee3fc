"""`init_process_group("nccl")` on a machine without a GPU.

As written the backend is the literal; as fixed it is `"gloo"` where there is no GPU. The control names no
backend: torch then takes gloo for what lies on the CPU.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="nccl-without-gpu",
    summary="the process group cannot be made without a GPU",
    rules=("DSL260",),
    cpu_only=True,
    one_host=True,
    expect=Expect(
        (Kind.RAISE,), r"NCCL built in|ProcessGroupNCCL is only supported with GPUs|NCCL backend.*not available"
    ),
    cases=(
        Case("literal", {"backend": "nccl"}),
        Case("not-named", {"backend": None}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The literal; control: none."""
    return _make(rank, rank.params["backend"])


def fixed(rank: RankApi) -> Json:
    """What the machine has."""
    import torch

    return _make(rank, "nccl" if torch.cuda.is_available() else "gloo")


def _make(rank: RankApi, backend: str | None) -> int:
    import torch.distributed as dist

    dist.init_process_group(backend, store=rank.store(), rank=rank.index, world_size=rank.world)
    dist.barrier()
    return dist.get_world_size()
