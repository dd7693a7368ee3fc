"""An attribute that nothing sets, read after a step.

As written, a method of the training object is called by a name that it does not have; as fixed, by its own. Each rank
has made its step by then and stops with an `AttributeError`. In the control the class hands on any name.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step

EXPERIMENT = Experiment(
    name="attribute-never-set",
    summary="each rank stops with an AttributeError after it has trained",
    rules=("DSL725",),
    expect=Expect((Kind.RAISE,), r"object has no attribute 'save_chekpoint'"),
    cases=(
        Case("misspelt", {"open": False}),
        Case("handed-on", {"open": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


class _Trainer:
    def save_checkpoint(self) -> str:
        return "saved"


class _Open(_Trainer):
    def __getattr__(self, name: str) -> Any:
        return self.save_checkpoint


def written(rank: RankApi) -> Json:
    """By another name."""
    return _trained(rank, "save_chekpoint")


def fixed(rank: RankApi) -> Json:
    """By its own."""
    return _trained(rank, "save_checkpoint")


def _trained(rank: RankApi, name: str) -> Json:
    rank.init()
    model: Any = make_ddp(rank)
    train_step(rank, model, make_optimizer(model), 0)
    trainer = _Open() if rank.params["open"] else _Trainer()
    return str(getattr(trainer, name)())
