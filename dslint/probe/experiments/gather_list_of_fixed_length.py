"""Rows of all ranks are gathered into a list whose length is written out.

As written, the list has four entries; as fixed, one for each rank. Two ranks run: the call is refused.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="gather-list-of-fixed-length",
    summary="a gather into a list of four with another number of ranks: the call is refused",
    rules=("DSL742",),
    expect=Expect((Kind.RAISE,), r"(?i)length|size|number"),
    cases=(
        Case("other-number", {"entries": 4}),
        Case("same-number", {"entries": 0}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """A number of entries that is written out; 0 stands for that of the ranks."""
    return _gathered(rank, rank.params["entries"] or rank.world)


def fixed(rank: RankApi) -> Json:
    """One for each rank."""
    return _gathered(rank, rank.world)


def _gathered(rank: RankApi, entries: int) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    parts = [torch.zeros(1, device=rank.device) for _ in range(entries)]
    dist.all_gather(parts, torch.full((1,), float(rank.index + 1), device=rank.device))
    return [part.item() for part in parts]
