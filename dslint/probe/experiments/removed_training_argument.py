"""A keyword argument that the installed transformers does not take.

As written, `TrainingArguments` or `Trainer` gets an argument under its old name; as fixed, under the new one, or not at
all. Every rank raises `TypeError` before anything else happens; reading a removed one raises `AttributeError`. The
controls are names of the installed release.

Whether a name is refused depends on the release: the cases are for transformers 5.15 and later, and arms of an older
release that takes the old name show nothing.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="removed-training-argument",
    summary="a class of transformers gets a keyword argument that was removed or renamed",
    rules=("DSL264",),
    flavour="transformers",
    expect=Expect((Kind.RAISE,), r"TypeError.*got an unexpected keyword argument"),
    cases=(
        Case(
            "evaluation_strategy", {"class": "TrainingArguments", "old": "evaluation_strategy", "new": "eval_strategy"}
        ),
        Case("no_cuda", {"class": "TrainingArguments", "old": "no_cuda", "new": "use_cpu"}),
        Case("warmup_ratio", {"class": "TrainingArguments", "old": "warmup_ratio", "new": "warmup_steps"}),
        Case("logging_dir", {"class": "TrainingArguments", "old": "logging_dir", "new": ""}),
        Case("group_by_length", {"class": "Seq2SeqTrainingArguments", "old": "group_by_length", "new": ""}),
        Case("tokenizer", {"class": "Trainer", "old": "tokenizer", "new": "processing_class"}),
        Case(
            "overwrite_output_dir-read",
            {"class": "TrainingArguments", "old": "overwrite_output_dir", "new": "output_dir", "reads": True},
            Expect((Kind.RAISE,), r"AttributeError.*has no attribute 'overwrite_output_dir'"),
        ),
        Case(
            "eval_strategy",
            {"class": "TrainingArguments", "old": "eval_strategy", "new": "eval_strategy"},
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case(
            "processing_class",
            {"class": "Trainer", "old": "processing_class", "new": "processing_class"},
            verdict=Verdict.NOT_REPRODUCED,
        ),
    ),
)


def written(rank: RankApi) -> Json:
    """The argument under its old name."""
    return _make(rank, rank.params["old"])


def fixed(rank: RankApi) -> Json:
    """The argument under its new name, or without it."""
    return _make(rank, rank.params["new"])


def _make(rank: RankApi, name: str) -> Json:
    import torch
    import transformers

    rank.init()
    title = rank.params["class"]
    if rank.params.get("reads"):
        getattr(transformers.TrainingArguments(output_dir="out", use_cpu=True, report_to="none"), name)
        return name
    if title != "Trainer":
        given = {name: _value(name)} if name else {}
        arguments = getattr(transformers, title)(output_dir="out", **{"use_cpu": True, "report_to": "none", **given})
        return arguments.output_dir
    arguments = transformers.TrainingArguments(output_dir="out", use_cpu=True, report_to="none")
    trainer = transformers.Trainer(model=torch.nn.Linear(2, 2), args=arguments, **({name: None} if name else {}))
    return trainer.args.output_dir


def _value(name: str) -> Json:
    if name in ("evaluation_strategy", "eval_strategy", "logging_dir"):
        return "no"
    return 0.1 if name.startswith("warmup") else True


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The class and the names of the finding, when a case has the same class."""
    fact = subject.finding.fact
    title, old = fact("class"), fact("argument")
    return dict(case.params) if (title, old) == (case.params["class"], case.params["old"]) else None
