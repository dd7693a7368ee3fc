"""A model with two branches, and a rank whose loss leaves the output of one of them out.

As written, the second rank takes a fresh zero for the second output in its first step; as fixed, the zero is made of
the output. As written its next forward raises. Where every rank uses both outputs nothing is wrong, nor where DDP
looks for unused parameters (the controls).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp

EXPERIMENT = Experiment(
    name="output-left-out-of-loss",
    summary="the next forward of the rank without objects raises",
    rules=("DSL696",),
    expect=Expect((Kind.RAISE, Kind.STALL), r"finished reduction"),
    cases=(
        Case("plain", {"finds": False, "empty": True}),
        Case("find-unused", {"finds": True, "empty": True}, verdict=Verdict.NOT_REPRODUCED),
        Case("objects-everywhere", {"finds": False, "empty": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """A fresh zero."""
    return _train(rank, depends=False)


def fixed(rank: RankApi) -> Json:
    """A zero that is made of the output."""
    return _train(rank, depends=True)


def _train(rank: RankApi, depends: bool) -> Json:
    import torch

    class Detector(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores, self.boxes = torch.nn.Linear(4, 1), torch.nn.Linear(4, 4)

        def forward(self, x: Json) -> Json:
            return self.scores(x), self.boxes(x)

    model = make_ddp(rank, Detector(), find_unused_parameters=bool(rank.params["finds"]))
    for step in range(2):
        scores, boxes = model(inputs(rank, step))
        part = boxes.sum() * 0.0 if depends else torch.zeros(())
        if not rank.params["empty"] or rank.index == 0:
            part = boxes.square().mean()
        (scores.square().mean() + part).backward()
        rank.mark(f"step {step}")
    return True


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - every finding is of this kind
    """As the wrapper is made by default."""
    return {} if case.name == "plain" else None
