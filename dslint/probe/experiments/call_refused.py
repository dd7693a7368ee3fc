"""A call that does not fit the function, at the end of a step.

As written, the evaluation after a step is called without the device that it wants (or with a keyword that it does not
take); as fixed, as it is defined. Each rank has made its step by then and stops with a `TypeError`. An argument with a
default (the control) may be left out.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step

EXPERIMENT = Experiment(
    name="call-refused",
    summary="each rank stops with a TypeError after it has trained",
    rules=("DSL723",),
    expect=Expect((Kind.RAISE,), r"missing 1 required positional argument: 'device'"),
    cases=(
        Case("missing", {"keyword": "", "optional": False}),
        Case(
            "keyword",
            {"keyword": "gpu", "optional": False},
            Expect((Kind.RAISE,), r"got an unexpected keyword argument 'gpu'"),
        ),
        Case("default", {"keyword": "", "optional": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Not as it is defined."""
    name = str(rank.params["keyword"])
    return _train(rank, {name: "cpu"} if name else {})


def fixed(rank: RankApi) -> Json:
    """As it is defined."""
    return _train(rank, {"device": "cpu"})


def _train(rank: RankApi, given: dict[str, str]) -> Json:
    rank.init()
    model: Any = make_ddp(rank)
    train_step(rank, model, make_optimizer(model), 0)
    evaluate: Any = _evaluate_anywhere if rank.params["optional"] else _evaluate
    return str(evaluate(model, **given))


def _evaluate(model: Any, device: str) -> str:
    return f"{type(model).__name__} on {device}"


def _evaluate_anywhere(model: Any, device: str = "cpu") -> str:
    return _evaluate(model, device)
