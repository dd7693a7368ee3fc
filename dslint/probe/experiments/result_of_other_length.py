"""A result that is taken apart into too few names, after a step.

As written, two names take what the evaluation after a step returns, which are three parts; as fixed, three do. Each
rank has made its step by then and stops with a `ValueError`. In the control the evaluation returns two.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step

EXPERIMENT = Experiment(
    name="result-of-other-length",
    summary="each rank stops with a ValueError after it has trained",
    rules=("DSL724",),
    expect=Expect((Kind.RAISE,), r"too many values to unpack \(expected 2"),
    cases=(
        Case("three", {"parts": 3}),
        Case("two", {"parts": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Two names."""
    loss, _ = _evaluated(rank)
    return str(loss)


def fixed(rank: RankApi) -> Json:
    """As many as there are."""
    loss, *_ = _evaluated(rank)
    return str(loss)


def _evaluated(rank: RankApi) -> tuple[float, ...]:
    rank.init()
    model: Any = make_ddp(rank)
    train_step(rank, model, make_optimizer(model), 0)
    return tuple(float(number) for number in range(int(rank.params["parts"])))
