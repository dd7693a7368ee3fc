"""`accelerator.backward(loss / n)` with an Accelerator that accumulates n micro-batches.

As written, the script divides the loss by the number of micro-batches of a step; as fixed, it does not. The
Accelerator divides it anyway, so that the written gradients are n times too small. An Accelerator that is not told of
the accumulation leaves the division to the script (the control: both divide once).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import make_accelerator
from dslint.probe.parts.compare import other_length
from dslint.probe.parts.ddp import inputs

EXPERIMENT = Experiment(
    name="accelerate-loss-divided-twice",
    summary="gradients are divided by the micro-batches of a step twice",
    flavour="transformers",
    rules=("DSL217",),
    expect=Expect((Kind.WRONG,), r"0\.25 times as large as they should be"),
    cases=(
        Case("told", {"told": True}),
        Case("not-told", {"told": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
MICRO_BATCHES = 4


def written(rank: RankApi) -> Json:
    """The script divides."""
    return _gradients(rank, told=rank.params["told"], divided=True)


def fixed(rank: RankApi) -> Json:
    """The Accelerator alone divides."""
    return _gradients(rank, told=True, divided=False)


def _gradients(rank: RankApi, told: bool, divided: bool) -> list[float]:
    """The gradients with which the first step is made."""
    import torch

    accelerator = make_accelerator(rank, gradient_accumulation_steps=MICRO_BATCHES if told else 1)
    model: Any = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for number in range(MICRO_BATCHES):
        with accelerator.accumulate(model):
            loss = (model(inputs(rank, number)) - 1).square().mean()
            accelerator.backward(loss / MICRO_BATCHES if divided else loss)
        rank.mark(f"micro-batch {number}")
    found = [float(value) for p in model.parameters() for value in p.grad.flatten()]
    optimizer.step()
    return found


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """How large the gradients are against those of the fixed arm."""
    return other_length(values, reference)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Findings about an Accelerator."""
    return {} if case.name == "told" and subject.finding.fact("library") == "accelerate" else None
