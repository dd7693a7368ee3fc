"""A callback of a Hugging Face Trainer sets a flag of the loop on rank 0 only.

As written, the callback asks for the rank before it sets `control.should_training_stop` (or `should_evaluate`,
`should_log`, `should_save`); as fixed, every rank sets it. Each rank looks at its own flag: the rank that stops is
missed in the next backward, the one that evaluates, logs or saves gathers what nobody else hands in (a checkpoint
begins with the sum of the operations of all ranks). Gloo may find the sizes of two different calls in conflict and end
the process.

The control stops rank 0 alone in the last step, after which the loop of every rank ends anyway.

DDP over gloo stands for any engine here: the loop looks at the flags in the same way under all of them.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.hf import BATCHES, make_trainer

EXPERIMENT = Experiment(
    name="trainer-flag-on-one-rank",
    summary="the loop of one rank stops, evaluates, logs or saves, and the loops of the others do not",
    rules=("DSL204",),
    flavour="transformers",
    expect=Expect((Kind.STALL, Kind.SIGNAL, Kind.RAISE), r"_engine_run_backward|gather|SIGABRT|Connection|mismatch"),
    cases=(
        Case("stop", {"flag": "should_training_stop"}),
        Case("evaluate", {"flag": "should_evaluate"}),
        Case("log", {"flag": "should_log"}),
        Case("save", {"flag": "should_save"}),
        Case(
            "stop-in-the-last-step", {"flag": "should_training_stop", "step": BATCHES}, verdict=Verdict.NOT_REPRODUCED
        ),
    ),
)


def written(rank: RankApi) -> Json:
    """Rank 0 alone sets the flag."""
    return _train(rank, is_alone=True)


def fixed(rank: RankApi) -> Json:
    """Every rank sets it."""
    return _train(rank, is_alone=False)


def _train(rank: RankApi, *, is_alone: bool) -> str:
    from transformers import TrainerCallback

    rank.init()
    trainer = make_trainer(rank)
    flag: str = rank.params["flag"]
    step: int = rank.params.get("step", 1)

    class Sets(TrainerCallback):
        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            if state.global_step == step and (rank.index == 0 or not is_alone):
                setattr(control, flag, True)

    trainer.add_callback(Sets())
    trainer.train()
    return flag


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case of the flag that the finding names."""
    fact = subject.finding.fact
    is_flag = (fact("collective"), fact("family")) == ("flag", "transformers")
    return {"flag": case.params["flag"]} if is_flag and case.params["flag"] in subject.finding.message else None
