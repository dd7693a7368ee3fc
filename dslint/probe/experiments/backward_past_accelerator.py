"""`loss.backward()` in a script that uses accelerate, in place of `accelerator.backward(loss)`.

As written, the loss computes its gradients itself; as fixed, the Accelerator does. It divides the loss by the number of
micro-batches that a step accumulates; without it, gradients add up instead of being averaged, and the step is that many
times too long. Without accumulation the two agree (the control). What the arms cannot show on a CPU: that fp16
gradients stay unscaled, and that a DeepSpeed engine is passed over.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import make_accelerator
from dslint.probe.parts.compare import other_length
from dslint.probe.parts.ddp import inputs

EXPERIMENT = Experiment(
    name="backward-past-accelerator",
    summary="gradients of the micro-batches of a step are added up instead of averaged",
    flavour="transformers",
    rules=("DSL263",),
    expect=Expect((Kind.WRONG,), r"times as large as they should be"),
    cases=(
        Case("accumulation", {"accumulation": 4}),
        Case("no-accumulation", {"accumulation": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """`loss.backward()`."""
    return _gradients(rank, past=True)


def fixed(rank: RankApi) -> Json:
    """`accelerator.backward(loss)`."""
    return _gradients(rank, past=False)


def _gradients(rank: RankApi, past: bool) -> list[float]:
    """The gradients with which the first step is made."""
    import torch

    accelerator = make_accelerator(rank, gradient_accumulation_steps=rank.params["accumulation"])
    model: Any = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    found: list[float] = []
    for number in range(rank.params["accumulation"]):
        with accelerator.accumulate(model):
            loss = (model(inputs(rank, number)) - 1).square().mean()
            loss.backward() if past else accelerator.backward(loss)
            if accelerator.sync_gradients:
                found = [float(value) for p in model.parameters() for value in p.grad.flatten()]
            optimizer.step()
            optimizer.zero_grad()
        rank.mark(f"micro-batch {number}")
    return found


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """How much longer the gradients are than those of the fixed arm."""
    return other_length(values, reference)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Accumulation, where the Accelerator of the finding accumulates; its other effects do not show on a CPU."""
    return {} if case.name == "accumulation" and subject.finding.fact("accumulates") else None
