"""A method of a Hugging Face Trainer that needs all ranks, called by rank 0 only.

As written, `trainer.evaluate()`, `predict()` or `train()` stands behind `if trainer.is_world_process_zero():`; as
fixed, every rank calls. Evaluation gathers the loss of each batch, training averages gradients, so rank 0 waits in the
first of these. `save_model()` is the control: with DDP rank 0 writes alone, and nothing is collective about it (with
ZeRO stage 3 it is; that mechanism has an experiment of its own).

DDP over gloo stands for any engine here: what evaluation gathers and where is the same.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.hf import make_trainer

EXPERIMENT = Experiment(
    name="trainer-call-under-guard",
    summary="rank 0 evaluates or trains with a Trainer while the other ranks go on",
    rules=("DSL201", "DSL202"),
    flavour="transformers",
    expect=Expect((Kind.STALL,), r"evaluation_loop|training_step|inner_training_loop|_verify_param_shape"),
    cases=(
        Case("evaluate", {"call": "evaluate"}),
        Case("predict", {"call": "predict"}),
        Case("train", {"call": "train"}),
        Case("save_model", {"call": "save_model"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Only rank 0 calls."""
    rank.init()
    trainer = make_trainer(rank)
    return _call(trainer, rank.params["call"]) if trainer.is_world_process_zero() else ""


def fixed(rank: RankApi) -> Json:
    """Every rank calls."""
    rank.init()
    return _call(make_trainer(rank), rank.params["call"])


def _call(trainer: Any, call: str) -> str:
    getattr(trainer, call)(*([trainer.eval_dataset] if call == "predict" else []))
    return call


# What subclasses call in their own methods -> the method in which it stands.
_INSIDE = {
    "evaluation_loop": "evaluate",
    "prediction_loop": "evaluate",
    "_nested_gather": "evaluate",
    "training_step": "train",
}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case of the method that the finding names."""
    fact = subject.finding.fact
    named = str(fact("collective"))
    call = _INSIDE.get(named, named)
    return {"call": call} if (fact("family"), call) == ("trainer", case.name) else None
