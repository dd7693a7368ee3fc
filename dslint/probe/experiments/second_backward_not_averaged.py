"""Two backward passes through a DDP model after one reduction was prepared.

As written, both backwards come after the forwards; as fixed, each loss has its own forward just before. As written the
gradients of the two ranks differ, as fixed they are equal. One backward of the sum is right (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp

EXPERIMENT = Experiment(
    name="second-backward-not-averaged",
    summary="the gradients of the ranks differ",
    rules=("DSL621",),
    expect=Expect((Kind.WRONG,), r"gradients differ"),
    cases=(
        Case("retained", {"kind": "retained"}),
        Case("two-forwards", {"kind": "two"}),
        Case("generator-between", {"kind": "generator"}),
        Case("sum", {"kind": "sum"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Both backwards at the end."""
    return _gradient(rank, late=True)


def fixed(rank: RankApi) -> Json:
    """Each after a forward of its own."""
    return _gradient(rank, late=False)


def _gradient(rank: RankApi, late: bool) -> Json:
    import torch

    torch.manual_seed(0)
    model, kind = make_ddp(rank, torch.nn.Linear(4, 1)), rank.params["kind"]
    batch = inputs(rank, 0)
    out = model(batch)
    if kind == "sum":
        (out.mean() + out.square().mean()).backward()
    elif kind == "generator":
        made, own = inputs(rank, 1).requires_grad_(True), out.square().mean()
        if late:
            model(made).mean().backward()
            model.zero_grad()
        own.backward()
    elif late:
        other = model(batch) if kind == "two" else out
        out.mean().backward(retain_graph=True)
        other.square().mean().backward()
    else:
        out.mean().backward()
        model(batch).square().mean().backward()
    gradient = model.module.weight.grad.flatten().tolist()
    return [round(number, 6) for number in gradient]


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - ranks are compared
    """Gradients that are not equal on the ranks."""
    return None if all(value == values[0] for value in values) else f"gradients differ: {values}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - every finding is of this kind
    """Which of them it is, makes no difference."""
    return {} if case.name == "retained" else None
