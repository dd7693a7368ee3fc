"""A schedule over steps of the optimizer, stepped in each micro batch inside `accelerator.accumulate`.

As written, `schedule.step()` runs in each turn; as fixed, where gradients are put together. The schedule was not handed
to `prepare`: as written it is at its end after the first step. With one micro batch both are the same (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="schedule-stepped-in-each-micro-batch",
    summary="the learning rate is at its end after a part of the steps",
    flavour="transformers",
    rules=("DSL775",),
    expect=Expect((Kind.WRONG,), r"the learning rate is at its end after step \d instead of step \d"),
    cases=(
        Case("four-micro-batches", {"micro": 4}),
        Case("one-micro-batch", {"micro": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
STEPS = 4


def written(rank: RankApi) -> Json:
    """In each turn."""
    return _train(rank, is_each=True)


def fixed(rank: RankApi) -> Json:
    """Where the optimizer steps."""
    return _train(rank, is_each=False)


def _train(rank: RankApi, *, is_each: bool) -> Json:
    import torch

    from dslint.probe.parts.accel import make_accelerator
    from dslint.probe.parts.ddp import inputs

    micro = int(str(rank.params["micro"]))
    accelerator = make_accelerator(rank, gradient_accumulation_steps=micro)
    model: Any = torch.nn.Linear(4, 1)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    schedule: Any = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS)
    done, ended = 0, None
    for turn in range(STEPS * micro):
        with accelerator.accumulate(model):
            accelerator.backward((model(inputs(rank, turn)) - 1).square().mean())
            optimizer.step()
            if is_each or accelerator.sync_gradients:
                schedule.step()
            optimizer.zero_grad()
        done += int(accelerator.sync_gradients)
        if ended is None and optimizer.param_groups[0]["lr"] < 0.0101:
            ended = done
        rank.mark(f"turn {turn}")
    return {"ended": ended}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another step."""
    here, expected = values[0]["ended"], reference[0]["ended"]
    if here == expected:
        return None
    return f"the learning rate is at its end after step {here} instead of step {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The first case, for every finding with several micro batches."""
    count = subject.finding.fact("gas")
    is_asked = case.name == "four-micro-batches" and (count is None or (isinstance(count, int) and count > 1))
    return {"micro": 4} if is_asked else None
