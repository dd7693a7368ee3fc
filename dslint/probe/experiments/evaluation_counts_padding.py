"""Seven samples in shares of a `DistributedSampler`, of which a classifier gets the first one right only.

As written, each rank counts its share and the counts are summed; as fixed, the shares are those without padding. As
written the first sample counts twice: 2 of 8 right instead of 1 of 7. With eight samples nothing is filled up (the
control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="evaluation-counts-padding",
    summary="a sample that fills the last round counts twice",
    flavour="torch",
    rules=("DSL698",),
    expect=Expect((Kind.WRONG,), r"2 of 8 right instead of 1 of 7"),
    cases=(Case("seven", {"items": 7}), Case("eight", {"items": 8}, verdict=Verdict.NOT_REPRODUCED)),
)


def written(rank: RankApi) -> Json:
    """Shares that the sampler fills up."""
    return _evaluate(rank, is_padded=True)


def fixed(rank: RankApi) -> Json:
    """Shares of the data set alone."""
    return _evaluate(rank, is_padded=False)


def _evaluate(rank: RankApi, is_padded: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, Subset

    rank.init()
    items: Any = list(range(rank.params["items"]))
    own: Any = Subset(items, range(torch.distributed.get_rank(), len(items), torch.distributed.get_world_size()))
    sampler: Any = DistributedSampler(items, shuffle=False)
    totals = torch.zeros(2)
    for batch in DataLoader(items, 2, sampler=sampler) if is_padded else DataLoader(own, 2):
        totals += torch.tensor([float((batch == 0).sum()), float(len(batch))])
    torch.distributed.all_reduce(totals)
    rank.mark("counted")
    return {"right": int(totals[0]), "count": int(totals[1])}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other counts."""
    here, expected = values[0], reference[0]
    if here == expected:
        return None
    return f"{here['right']} of {here['count']} right instead of {expected['right']} of {expected['count']}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - the samples are the case's own
    """The case that fills up."""
    return {} if case.name == "seven" else None
