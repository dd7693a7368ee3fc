"""A parameter of a `DistributedDataParallel` model takes no part in the loss.

As written, one layer is not used; as fixed, DDP is told so (`find_unused_parameters=True`). DDP waits for the gradient
of every parameter before it is done with a step: the *next* forward raises. Where only some ranks leave the layer out,
those raise while the others wait for the gradient that does not come.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer

EXPERIMENT = Experiment(
    name="ddp-unused-parameter",
    summary="DDP raises in the second step when a parameter got no gradient in the first",
    rules=("DSL234", "DSL636", "DSL642"),
    expect=Expect((Kind.RAISE,), r"RuntimeError: Expected to have finished reduction in the prior iteration"),
    cases=(
        Case("on-every-rank", {"unused_on": [0, 1]}),
        Case("on-one-rank", {"unused_on": [1]}),
        Case("all-used", {"unused_on": []}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """DDP as it is by default."""
    return _train(rank, find=False)


def fixed(rank: RankApi) -> Json:
    """With `find_unused_parameters`."""
    return _train(rank, find=True)


def _train(rank: RankApi, find: bool) -> Json:
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text = torch.nn.Linear(4, 1)
            self.image = torch.nn.Linear(4, 1)

        def forward(self, rows: Any, images: bool) -> Any:
            return self.text(rows) + (self.image(rows) if images else 0)

    rank.init()
    model = make_ddp(rank, Model(), find_unused_parameters=find)
    optimizer = make_optimizer(model)
    for number in range(3):
        loss = model(inputs(rank, number), rank.index not in rank.params["unused_on"]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rank.mark(f"step {number}")
    return "trained"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - what counts is the layer
    """The finding is about a layer that every call leaves out."""
    return {} if case.name == "on-every-rank" else None
