"""`optimizer.zero_grad()` at the start of each micro batch inside `accelerator.accumulate`.

As written, the gradients are cleared before the backward; as fixed, after the step. The prepared optimizer leaves
`zero_grad` out on all micro batches but the last of a step, and on that one the call clears what the others have
accumulated: the step is made with the gradient of one micro batch. With one micro batch a step both arms are the same
(the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import make_accelerator
from dslint.probe.parts.ddp import inputs, weights

EXPERIMENT = Experiment(
    name="accumulated-gradients-cleared",
    summary="the step is made with the gradient of the last micro batch alone",
    flavour="transformers",
    rules=("DSL268",),
    expect=Expect((Kind.WRONG,), r"the weights are those of the last micro batch alone"),
    cases=(
        Case("four", {"gas": 4}),
        Case("one", {"gas": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Cleared first."""
    return _train(rank, is_early=True)


def fixed(rank: RankApi) -> Json:
    """Cleared after the step."""
    return _train(rank, is_early=False)


def _train(rank: RankApi, is_early: bool) -> Json:
    """The weights after one step, and those after a step with the last micro batch alone."""
    import torch

    micro_batches = rank.params["gas"]
    accelerator = make_accelerator(rank, gradient_accumulation_steps=micro_batches)
    first = [[0.1, 0.2, 0.3, 0.4]]
    alone = torch.nn.Linear(4, 1).to(rank.device)
    model: Any = torch.nn.Linear(4, 1)
    for net in (model, alone):
        net.load_state_dict({"weight": torch.tensor(first), "bias": torch.zeros(1)})
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for number in range(micro_batches):
        with accelerator.accumulate(model):
            if is_early:
                optimizer.zero_grad()
            accelerator.backward((model(inputs(rank, number)) - 1).square().mean())
            optimizer.step()
            if not is_early:
                optimizer.zero_grad()
        rank.mark(f"micro-batch {number}")
    loss = (alone(inputs(rank, micro_batches - 1)) - 1).square().mean() / micro_batches
    loss.backward()
    for parameter in alone.parameters():
        torch.distributed.all_reduce(parameter.grad)
        parameter.data -= 0.1 * parameter.grad / torch.distributed.get_world_size()
    return {"weights": weights(model), "alone": weights(alone)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Whether the step was made without what the first micro batches have accumulated."""
    found, expected = values[0], reference[0]
    if _is_close(found["weights"], expected["weights"]):
        return None
    if _is_close(found["weights"], found["alone"]):
        return "the weights are those of the last micro batch alone"
    return f"the weights are {found['weights']}"


def _is_close(left: list[float], right: list[float]) -> bool:
    return all(abs(one - other) < 1e-5 for one, other in zip(left, right, strict=True))


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The number of micro batches of the finding."""
    gas = subject.finding.fact("gas")
    if case.name != "four":
        return None
    return {"gas": gas} if isinstance(gas, int) and 1 < gas <= 16 else {}
