"""A rank runs backward on a tensor that no parameter took part in.

As written, rank 1 replaces the loss of one batch by a new tensor with `requires_grad=True`; as fixed, by its loss times
zero. As written no hook of the model fires on rank 1: rank 0 waits in its backward pass until the timeout, or takes the
next collectives of rank 1 for those of this one. The same in the same step of all ranks is no mistake (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer
from dslint.probe.parts.zero import config, engine

EXPERIMENT = Experiment(
    name="loss-without-graph",
    summary="a leaf takes the place of the loss on one rank, and the others wait",
    rules=("DSL664",),
    expect=Expect((Kind.STALL, Kind.RAISE), r"backward|finished reduction|_engine_run"),
    cases=(
        Case("ddp", {"model": "ddp"}),
        Case("ddp-unused", {"model": "unused"}),
        Case("z3", {"model": "z3"}),
        Case("all-ranks", {"model": "unused", "all": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_STEPS, _WHEN = 4, 1


def written(rank: RankApi) -> Json:
    """A new tensor."""
    return _train(rank, keeps=False)


def fixed(rank: RankApi) -> Json:
    """The loss times zero."""
    return _train(rank, keeps=True)


def _train(rank: RankApi, keeps: bool) -> Json:
    import torch

    is_engine = rank.params["model"] == "z3"
    rank.init()
    is_lenient = rank.params["model"] == "unused"
    model: Any = engine(rank, config(3)) if is_engine else make_ddp(rank, find_unused_parameters=is_lenient)
    optimizer = None if is_engine else make_optimizer(model)
    for number in range(_STEPS):
        loss = (model(inputs(rank, number)) - 1).square().mean()
        if number == _WHEN and (rank.index == 1 or rank.params.get("all")):
            loss = loss * 0.0 if keeps else torch.zeros((), device=rank.device, requires_grad=True)
        if optimizer is None:
            model.backward(loss)
            model.step()
        else:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rank.mark(f"step {number}")
    return _STEPS
