"""`DataLoader(dataset, sampler=sampler, shuffle=True)`.

As written, both are given; as fixed, the sampler alone (a `DistributedSampler` shuffles by itself). The constructor
raises on every rank. ``shuffle=False`` beside a sampler is the control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="shuffle-with-sampler",
    summary="the DataLoader refuses a sampler together with shuffle",
    expect=Expect((Kind.RAISE,), r"ValueError: sampler option is mutually exclusive with shuffle"),
    cases=(
        Case("shuffle", {"shuffle": True}),
        Case("no-shuffle", {"shuffle": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Sampler and shuffle."""
    return _count(rank, {"shuffle": rank.params["shuffle"]})


def fixed(rank: RankApi) -> Json:
    """The sampler alone."""
    return _count(rank, {})


def _count(rank: RankApi, arguments: dict[str, bool]) -> int:
    from torch.utils.data import DataLoader, DistributedSampler

    rank.init()
    items = list(range(8))
    sampler: Any = DistributedSampler(items)
    return len(list(DataLoader(items, sampler=sampler, **arguments)))
