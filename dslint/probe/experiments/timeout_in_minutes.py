"""`DEEPSPEED_TIMEOUT` with a value that is no number of minutes, or that was meant as seconds.

DeepSpeed reads the variable when it is imported. As written, its module of constants is read again with the value of
the finding; as fixed, with the number of minutes that is meant. That a hang then lasts as long is not shown.
"""

from __future__ import annotations

import os

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="timeout-in-minutes",
    summary="DeepSpeed does not start, or waits for hours, because DEEPSPEED_TIMEOUT counts minutes",
    rules=("DSL341",),
    flavour="deepspeed",
    ranks=1,
    cpu_only=True,
    expect=Expect((Kind.WRONG,), r"a collective times out after .* hours instead of 2 hours"),
    cases=(
        Case("seconds", {"value": "7200"}),
        Case("with-a-unit", {"value": "30m"}, Expect((Kind.RAISE,), r"ValueError: invalid literal for int\(\)")),
        Case("a-fraction", {"value": "1.5"}, Expect((Kind.RAISE,), r"ValueError: invalid literal for int\(\)")),
        Case("minutes", {"value": "120"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The value as it is."""
    return _hours(rank.params["value"])


def fixed(rank: RankApi) -> Json:
    """Two hours."""
    del rank
    return _hours("120")


def _hours(value: str) -> Json:
    from importlib import import_module, reload

    os.environ["DEEPSPEED_TIMEOUT"] = value
    timeout = reload(import_module("deepspeed.constants")).default_pg_timeout
    return timeout.total_seconds() / 3600


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """How long a collective waits."""
    if values[0] == reference[0]:
        return None
    return f"a collective times out after {values[0]:g} hours instead of {reference[0]:g} hours"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The value that the launch file sets, in the case of its kind."""
    finding = subject.finding
    value = str(finding.fact("value"))
    if finding.fact("variable") != "DEEPSPEED_TIMEOUT":
        return None
    is_number = value.isdecimal()
    return {"value": value[:20]} if case.name == ("seconds" if is_number else "with-a-unit") else None
