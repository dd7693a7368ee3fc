"""A loader over the part of one process, prepared by accelerate.

As written, each rank keeps every second item and prepares a loader over them; as fixed, the loader has all items. As
written half of the items are never seen. A loader of its own part that is not prepared misses none (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import items_of, make_accelerator

EXPERIMENT = Experiment(
    name="own-part-dealt-out-again",
    summary="items that are cut out by rank are dealt out once more, and most are never seen",
    flavour="transformers",
    rules=("DSL627",),
    expect=Expect((Kind.WRONG,), r"32 of 64 items are seen"),
    cases=(
        Case("part", {"prepared": True}),
        Case("not-prepared", {"prepared": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
ITEMS = 64


def written(rank: RankApi) -> Json:
    """A part for each rank."""
    return _items(rank, is_part=True, is_prepared=rank.params["prepared"])


def fixed(rank: RankApi) -> Json:
    """All items for accelerate."""
    return _items(rank, is_part=False, is_prepared=True)


def _items(rank: RankApi, is_part: bool, is_prepared: bool) -> Json:
    from torch.utils.data import DataLoader

    accelerator = make_accelerator(rank)
    items = list(range(ITEMS))
    data: Any = items[rank.index :: rank.world] if is_part else items
    loader = DataLoader(data, batch_size=4)
    return {"items": items_of(accelerator.prepare(loader) if is_prepared else loader)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Items that no rank sees."""
    seen = {item for value in values for item in value["items"]}
    missing = {item for value in reference for item in value["items"]} - seen
    return f"{len(seen)} of {ITEMS} items are seen" if missing else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "part" and subject.finding.fact("argument") == "dataset" else None
