"""A Trainer whose `get_train_dataloader` returns a plain loader.

As written, the override makes a `DataLoader` and returns it: every rank trains on all items. As fixed, it returns what
`self.accelerator.prepare` gives. A rank that has cut its own part before is the control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import items_of, make_accelerator

EXPERIMENT = Experiment(
    name="trainer-loader-not-prepared",
    summary="every rank trains on all items",
    rules=("DSL655",),
    flavour="transformers",
    cpu_only=True,
    one_host=True,
    expect=Expect((Kind.WRONG,), r"item \d+ is seen by \d+ ranks"),
    cases=(
        Case("whole", {"part": False}),
        Case("own-part", {"part": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The loader as the override makes it."""
    return _items(rank, is_prepared=False)


def fixed(rank: RankApi) -> Json:
    """The loader that accelerate has divided."""
    return _items(rank, is_prepared=not rank.params["part"])


def _items(rank: RankApi, is_prepared: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader
    from transformers import Trainer, TrainingArguments

    make_accelerator(rank)

    class Own(Trainer):
        def get_train_dataloader(self) -> Any:
            rows: Any = self.train_dataset
            loader: Any = DataLoader(rows, batch_size=2)
            return self.accelerator.prepare(loader) if is_prepared else loader

    items: Any = list(range(8))
    if rank.params["part"]:
        items = items[rank.index :: rank.world]
    args = TrainingArguments(rank.folder, use_cpu=True, report_to=[])
    return items_of(Own(model=torch.nn.Linear(1, 1), args=args, train_dataset=items).get_train_dataloader())


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """An item that more ranks see than in the fixed arm."""
    for item in sorted({item for value in reference for item in value}):
        ranks = sum(item in value for value in values)
        if ranks > sum(item in value for value in reference):
            return f"item {item} is seen by {ranks} ranks"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - the items are the case's own
    """The case of a whole data set."""
    return {} if case.name == "whole" else None
