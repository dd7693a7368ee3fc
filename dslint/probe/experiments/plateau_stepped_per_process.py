"""A `ReduceLROnPlateau` that `accelerator.prepare` has wrapped with its defaults.

As written, the Accelerator has its defaults, and each `scheduler.step(metric)` steps the schedule once for each
process; as fixed, `step_scheduler_with_optimizer=False`. An epoch without improvement counts once for each process, so
that the patience is used up in fewer epochs. An Accelerator that splits batches steps once (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="plateau-stepped-per-process",
    summary="the patience of a schedule is used up once for each process",
    flavour="transformers",
    rules=("DSL274",),
    expect=Expect((Kind.WRONG,), r"the learning rate falls after epoch \d instead of epoch \d"),
    cases=(
        Case("defaults", {"split": False}),
        Case("split-batches", {"split": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
PATIENCE = 3


def written(rank: RankApi) -> Json:
    """As accelerate does by default."""
    from accelerate import DataLoaderConfiguration

    return _train(rank, dataloader_config=DataLoaderConfiguration(split_batches=rank.params["split"]))


def fixed(rank: RankApi) -> Json:
    """Each step of the script is one step."""
    return _train(rank, step_scheduler_with_optimizer=False)


def _train(rank: RankApi, **arguments: Any) -> Json:
    import torch

    from dslint.probe.parts.accel import make_accelerator
    from dslint.probe.parts.ddp import inputs

    accelerator = make_accelerator(rank, **arguments)
    model: Any = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=PATIENCE)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    lowered = None
    for epoch in range(1, 4 * PATIENCE):
        accelerator.backward((model(inputs(rank, epoch)) - 1).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        schedule.step(1.0)
        if lowered is None and optimizer.param_groups[0]["lr"] < 0.1:
            lowered = epoch
        rank.mark(f"epoch {epoch}")
    return {"lowered": lowered}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another epoch."""
    here, expected = values[0]["lowered"], reference[0]["lowered"]
    return None if here == expected else f"the learning rate falls after epoch {here} instead of epoch {expected}"
