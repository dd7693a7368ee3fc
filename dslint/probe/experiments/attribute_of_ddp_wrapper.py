"""An attribute of the model, read from the `DistributedDataParallel` around it.

As written, `out_features` of a linear layer is read from the wrapper after a step; as fixed, from its `module`. The
wrapper hands on nothing and raises. What every module has (the control) is there in both.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step

EXPERIMENT = Experiment(
    name="attribute-of-ddp-wrapper",
    summary="each rank stops with an AttributeError",
    rules=("DSL285",),
    expect=Expect((Kind.RAISE,), r"'DistributedDataParallel' object has no attribute 'out_features'"),
    cases=(
        Case("of-the-model", {"name": "out_features"}),
        Case("of-every-module", {"name": "training"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """From the wrapper."""
    return _train(rank, inside=False)


def fixed(rank: RankApi) -> Json:
    """From the model inside."""
    return _train(rank, inside=True)


def _train(rank: RankApi, inside: bool) -> Json:
    rank.init()
    model: Any = make_ddp(rank)
    train_step(rank, model, make_optimizer(model), 0)
    return str(getattr(model.module if inside else model, str(rank.params["name"])))
