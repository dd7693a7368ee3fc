"""The state of an optimizer that only rank 0 restores.

As written, rank 0 loads the momentum of an earlier run and rank 1 begins without; as fixed, both load it. DDP averages
the gradients, and the steps differ all the same: the ranks have different weights after the first one. Where nothing
is loaded they are equal (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, train_step, weights

EXPERIMENT = Experiment(
    name="state-loaded-on-some-ranks",
    summary="the replicas make different steps",
    rules=("DSL717",),
    expect=Expect((Kind.WRONG,), r"the ranks have different weights"),
    cases=(
        Case("resumed", {"resumes": True}),
        Case("from-the-start", {"resumes": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Rank 0 alone."""
    return _train(rank, loads=rank.index == 0)


def fixed(rank: RankApi) -> Json:
    """Every rank."""
    return _train(rank, loads=True)


def _train(rank: RankApi, loads: bool) -> Json:
    import torch

    rank.init()
    torch.manual_seed(0)
    model = make_ddp(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if rank.params["resumes"]:
        train_step(rank, model, optimizer, 0)
        state = optimizer.state_dict()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if loads:
            optimizer.load_state_dict(state)
    train_step(rank, model, optimizer, 1)
    return weights(model)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Ranks that differ."""
    return None if all(value == values[0] for value in values) else "the ranks have different weights"
