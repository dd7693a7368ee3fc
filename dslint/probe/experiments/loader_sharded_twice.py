"""A loader with a `DistributedSampler` that accelerate prepares.

As written, the sampler deals out the items and `accelerator.prepare` deals out the batches of each rank once more; as
fixed, the loader has no such sampler. Nothing fails: an epoch has 1/N of its steps on N ranks, and the items that no
rank sees are the same in every epoch without shuffling. A sampler for one replica, which holds all items, is the
control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import items_of, make_accelerator

EXPERIMENT = Experiment(
    name="loader-sharded-twice",
    summary="items are dealt out by the sampler, and batches by accelerate: most of the data is never seen",
    rules=("DSL267",),
    flavour="transformers",
    expect=Expect((Kind.WRONG,), r"\d+ of \d+ items are seen in an epoch, \d+ on a rank instead of \d+"),
    cases=(
        Case("prepare", {"through": "sampler", "replicas": None, "dispatches": None}),
        Case("batch-sampler", {"through": "batch_sampler", "replicas": None, "dispatches": None}),
        Case("dispatch-batches", {"through": "sampler", "replicas": None, "dispatches": True}),
        Case("one-replica", {"through": "sampler", "replicas": 1, "dispatches": None}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
ITEMS = 16


def written(rank: RankApi) -> Json:
    """A sampler, and a loader that is prepared."""
    from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

    accelerator = _accelerator(rank)
    items: Any = list(range(ITEMS))
    replicas = rank.params["replicas"]
    own = {"num_replicas": replicas, "rank": 0} if replicas else {}
    sampler: Any = DistributedSampler(items, shuffle=False, **own)
    if rank.params["through"] == "batch_sampler":
        return items_of(accelerator.prepare(DataLoader(items, batch_sampler=BatchSampler(sampler, 2, drop_last=False))))
    return items_of(accelerator.prepare(DataLoader(items, batch_size=2, sampler=sampler)))


def fixed(rank: RankApi) -> Json:
    """The loader without a sampler, prepared."""
    from torch.utils.data import DataLoader

    items: Any = list(range(ITEMS))
    return items_of(_accelerator(rank).prepare(DataLoader(items, batch_size=2)))


def _accelerator(rank: RankApi) -> Any:
    from accelerate import DataLoaderConfiguration

    dispatches = rank.params["dispatches"]
    return make_accelerator(rank, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatches))


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Fewer items than there are, on all ranks together."""
    seen = {item for value in values for item in value}
    if len(seen) == ITEMS:
        return None
    steps = f"{len(values[0])} on a rank instead of {len(reference[0])}"
    return f"{len(seen)} of {ITEMS} items are seen in an epoch, {steps}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """By a sampler, or by a batch sampler around it."""
    return (
        {}
        if case.name == ("batch-sampler" if subject.finding.fact("argument") == "batch_sampler" else "prepare")
        else None
    )
