"""A key that stands twice in a config that transformers or accelerate reads.

As written, the user's own file goes through `HfDeepSpeedConfig`, which reads plain JSON: of two values the later one
counts, and nobody says so. As fixed, the same file holds each key once. DeepSpeed itself refuses such a file, but it
never sees it: it gets the data that transformers has read.
"""

from __future__ import annotations

from dslint.probe.config_cases import config_case, config_params, is_for_trainer
from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ds_config import repaired
from dslint.probe.parts.hf_config import read_twice

_LOST = Expect((Kind.WRONG,), "drops .* without a word")
_TWICE = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "zero_optimization": {"stage": %s}}'

EXPERIMENT = Experiment(
    name="duplicate-key-under-trainer",
    summary="transformers drops the first of two values without a word",
    rules=("DSL111",),
    flavour="transformers",
    ranks=1,
    expect=_LOST,
    cases=(
        config_case("duplicate-key", "DSL111", "/zero_optimization", _TWICE % 1, expect=_LOST),
        config_case("same-value-twice", "DSL111", "/zero_optimization", _TWICE % 2, verdict=Verdict.NOT_REPRODUCED,
                    expect=_LOST),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The file as it is."""
    return read_twice(rank.params["text"])


def fixed(rank: RankApi) -> Json:
    """Each key once."""
    return read_twice(repaired({**rank.params, "fixed": None, "pointer": ""}))


def wrong(values: list[Json], _reference: list[Json]) -> str | None:
    """A value of the file that is nowhere in the data, and no exception."""
    lost = values[0]["lost"]
    return f"transformers drops {' and '.join(lost)} without a word" if lost else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The user's own text, when transformers or accelerate reads it."""
    return config_params(subject, case) if is_for_trainer(subject) else None
