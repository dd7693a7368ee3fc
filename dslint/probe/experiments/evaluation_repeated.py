"""An evaluation loop over a loader that no sampler divides: every rank runs over all items.

As written, each rank goes through all items; as fixed, a `DistributedSampler` gives each rank its share.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

_ITEMS = 16
EXPERIMENT = Experiment(
    name="evaluation-repeated",
    summary="every rank evaluates the whole set, and nothing joins the results",
    flavour="torch",
    rules=("DSL755",),
    expect=Expect((Kind.WRONG,), r"2 ranks evaluate 32 items of a set of 16"),
    cases=(Case("whole-set"),),
)


def written(rank: RankApi) -> Json:
    """No sampler."""
    return _seen(rank, divides=False)


def fixed(rank: RankApi) -> Json:
    """A sampler that gives each rank its share."""
    return _seen(rank, divides=True)


def _seen(rank: RankApi, divides: bool) -> Json:
    from torch.utils.data import DataLoader, DistributedSampler

    rank.init()
    items: Any = [1.0] * _ITEMS
    sampler: Any = DistributedSampler(items, shuffle=False) if divides else None
    return {"seen": sum(batch.numel() for batch in DataLoader(items, batch_size=4, sampler=sampler))}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Say how many items the ranks evaluate together."""
    seen, expected = (sum(value["seen"] for value in each) for each in (values, reference))
    return f"{len(values)} ranks evaluate {seen} items of a set of {_ITEMS}" if seen != expected else None
