"""An evaluation loop over a loader that no sampler divides, and a sum over the ranks.

As written, each rank counts the items of the loader and the ranks add up their counts; as fixed, a `DistributedSampler`
gives each rank its share. Without the sum each rank holds the right count as written, too.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="evaluation-not-divided",
    summary="every rank evaluates the whole set",
    flavour="torch",
    rules=("DSL603",),
    expect=Expect((Kind.WRONG,), r"each of the 16 samples is counted 2 times"),
    cases=(
        Case("sum", {"joins": True}),
        Case("no-sum", {"joins": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_ITEMS = 16


def written(rank: RankApi) -> Json:
    """No sampler."""
    return _count(rank, divides=False)


def fixed(rank: RankApi) -> Json:
    """A sampler that gives each rank its share, where the ranks add up."""
    return _count(rank, divides=bool(rank.params["joins"]))


def _count(rank: RankApi, divides: bool) -> Json:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler

    rank.init()
    items: Any = [1.0] * _ITEMS
    sampler: Any = DistributedSampler(items, shuffle=False) if divides else None
    count = torch.zeros(1)
    for batch in DataLoader(items, batch_size=4, sampler=sampler):
        count += batch.numel()
    if rank.params["joins"]:
        dist.all_reduce(count)
    return {"count": count.item()}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Say how often a sample counts."""
    count, expected = values[0]["count"], reference[0]["count"]
    return f"each of the {_ITEMS} samples is counted {count / _ITEMS:.0f} times" if count != expected else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Findings are about ranks that join their numbers."""
    return {} if case.name == "sum" and subject.finding.fact("call") else None
