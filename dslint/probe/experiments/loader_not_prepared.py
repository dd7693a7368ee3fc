"""A DataLoader that nobody divides among the ranks.

As written, every rank iterates over a plain `DataLoader(dataset)`; as fixed, accelerate prepares it, or a
`DistributedSampler` deals the items out. Nothing fails: each rank trains on all items, so an epoch is as long as on one
GPU, and averaging gradients over equal batches gains nothing. A data set
that the rank has cut for itself is the control.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import items_of, make_accelerator

EXPERIMENT = Experiment(
    name="loader-not-prepared",
    summary="every rank trains on all items",
    rules=("DSL254",),
    flavour="transformers",
    expect=Expect((Kind.WRONG,), r"item \d+ is seen by \d+ ranks"),
    cases=(
        Case("sampler", {"by": "sampler", "items": 8}),
        Case("prepare", {"by": "prepare", "items": 8}),
        Case("own-part", {"by": "rank", "items": 8}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The loader as it is."""
    from torch.utils.data import DataLoader

    make_accelerator(rank)
    items = list(range(rank.params["items"]))
    if rank.params["by"] == "rank":
        items = items[rank.index :: rank.world]
    return items_of(DataLoader(items, batch_size=2))


def fixed(rank: RankApi) -> Json:
    """The loader prepared, or made with a sampler."""
    from torch.utils.data import DataLoader, DistributedSampler

    accelerator = make_accelerator(rank)
    items = list(range(rank.params["items"]))
    if rank.params["by"] == "prepare":
        return items_of(accelerator.prepare(DataLoader(items, batch_size=2)))
    return items_of(DataLoader(items, batch_size=2, sampler=DistributedSampler(items, shuffle=False)))


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """An item that more ranks see than in the fixed arm."""
    for item in sorted({item for value in reference for item in value}):
        ranks = sum(item in value for value in values)
        if ranks > sum(item in value for value in reference):
            longer = f"{len(values[0])} items a rank instead of {len(reference[0])}"
            return f"item {item} is seen by {ranks} ranks: {longer}"
    return None
