"""`dist.gather(tensor, gather_list=parts, dst=0)` with a list on every rank.

As written, every rank passes the list; as fixed, only the destination does and the others pass `None`. The other ranks
raise before they send anything, and rank 0 waits for them.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="gather-list-on-every-rank",
    summary="`gather` raises on every rank but the destination, which then waits for them",
    expect=Expect((Kind.RAISE,), r"ValueError: Argument .*(?:gather_list|scatter_list).* must NOT be specified"),
    cases=(Case("gather", {"call": "gather"}), Case("scatter", {"call": "scatter"})),
)


def written(rank: RankApi) -> Json:
    """A list everywhere."""
    return _call(rank, everywhere=True)


def fixed(rank: RankApi) -> Json:
    """A list on rank 0 only."""
    return _call(rank, everywhere=False)


def _call(rank: RankApi, everywhere: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    tensor = torch.full((2,), float(rank.index), device=rank.device)
    parts = [torch.zeros(2, device=rank.device) for _ in range(rank.world)]
    given = parts if everywhere or rank.index == 0 else None
    if rank.params["call"] == "gather":
        dist.gather(tensor, given, dst=0)
    else:
        dist.scatter(tensor, given, src=0)
    return tensor.tolist()
