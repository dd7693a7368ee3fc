"""fp16 and bf16 asked for together: the arguments of the Trainer refuse.

`HfArgumentParser` of the installed transformers reads the words, as written and with one of the two.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="both-precisions",
    summary="the Trainer refuses fp16 beside bf16",
    rules=("DSL455",),
    flavour="transformers",
    ranks=1,
    cpu_only=True,
    expect=Expect((Kind.RAISE,), r"ValueError: At most one of fp16 and bf16 can be True"),
    cases=(
        Case("with-values", {"words": ["--fp16", "True", "--bf16", "True"]}),
        Case("switches", {"words": ["--fp16", "--bf16"]}),
        Case("one-is-off", {"words": ["--fp16", "False", "--bf16", "True"]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Both."""
    return _reads(rank.params["words"])


def fixed(rank: RankApi) -> Json:
    """One of them."""
    del rank
    return _reads(["--bf16"])


def _reads(words: list[str]) -> Json:
    from transformers import HfArgumentParser, TrainingArguments

    (parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--use_cpu", *words])
    return bool(parsed.bf16)
