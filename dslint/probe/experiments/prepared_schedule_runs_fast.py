"""A schedule that counts real steps and that `accelerator.prepare` has wrapped with its defaults.

As written, the schedule counts the steps of the script, and each `scheduler.step()` runs once for each process; as
fixed, its numbers are multiplied by the number of processes. As written the learning rate is at its end after a part of
the steps. An Accelerator that splits batches steps once, and there the plain numbers are right (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="prepared-schedule-runs-fast",
    summary="a prepared schedule is at its end after a part of the steps",
    flavour="transformers",
    rules=("DSL284",),
    expect=Expect((Kind.WRONG,), r"the learning rate is at its end after step \d instead of step \d"),
    cases=(
        Case("defaults", {"split": False}),
        Case("split-batches", {"split": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
STEPS = 8


def written(rank: RankApi) -> Json:
    """The steps of the script."""
    return _train(rank, 1)


def fixed(rank: RankApi) -> Json:
    """Those that the schedule makes of them."""
    return _train(rank, 1 if rank.params["split"] else rank.world)


def _train(rank: RankApi, times: int) -> Json:
    import torch
    from accelerate import DataLoaderConfiguration

    from dslint.probe.parts.accel import make_accelerator
    from dslint.probe.parts.ddp import inputs

    accelerator = make_accelerator(
        rank, dataloader_config=DataLoaderConfiguration(split_batches=bool(rank.params["split"]))
    )
    model: Any = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule: Any = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS * times)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    ended = None
    for step in range(1, STEPS + 1):
        accelerator.backward((model(inputs(rank, step)) - 1).square().mean())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if ended is None and optimizer.param_groups[0]["lr"] < 0.0101:
            ended = step
        rank.mark(f"step {step}")
    return {"ended": ended}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another step."""
    here, expected = values[0]["ended"], reference[0]["ended"]
    if here == expected:
        return None
    return f"the learning rate is at its end after step {here} instead of step {expected}"
