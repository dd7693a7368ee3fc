"""A prepared schedule whose numbers are multiplied by the micro batches of a step.

As written, the length counts micro batches; as fixed, it counts a step for each process. Accelerate steps the schedule
only with the optimizer: as written, much of the learning rate is left at the end. With as many micro batches as
processes both are the same number (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="prepared-schedule-times-accumulation",
    summary="the schedule is as many times too long as there are micro batches for a process",
    flavour="transformers",
    rules=("DSL692",),
    expect=Expect((Kind.WRONG,), r"0\.5\d* of the learning rate is left instead of 0\.0"),
    cases=(
        Case("four-micro-batches", {"factor": 2}),
        Case("as-many-as-processes", {"factor": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
STEPS = 4


def written(rank: RankApi) -> Json:
    """The steps times the micro batches."""
    return _train(rank, _micro_batches(rank))


def fixed(rank: RankApi) -> Json:
    """The steps times the processes."""
    return _train(rank, rank.world)


def _micro_batches(rank: RankApi) -> int:
    return rank.world * int(str(rank.params["factor"]))


def _train(rank: RankApi, times: int) -> Json:
    import torch

    from dslint.probe.parts.accel import make_accelerator
    from dslint.probe.parts.ddp import inputs

    micro = _micro_batches(rank)
    accelerator = make_accelerator(rank, gradient_accumulation_steps=micro)
    model: Any = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    length = STEPS * times
    schedule: Any = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / length))
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    for turn in range(STEPS * micro):
        with accelerator.accumulate(model):
            accelerator.backward(model(inputs(rank, turn)).square().mean())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return {"left": round(float(optimizer.param_groups[0]["lr"]), 4)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """What is left of the learning rate."""
    here, expected = values[0]["left"], reference[0]["left"]
    return None if here == expected else f"{here} of the learning rate is left instead of {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The first case, for every finding."""
    is_asked = case.name == "four-micro-batches" and subject.finding.fact("factor") == "accumulation"
    return {"factor": 2} if is_asked else None
