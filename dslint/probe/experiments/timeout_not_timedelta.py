"""A number is passed as the timeout of a process group.

As written the call of torch gets a number (or a text); as fixed a `timedelta` of as many seconds. The type is checked
before anything else, on every rank. `monitored_barrier` raises on an integer too; a float, which it takes as seconds
with a warning, is the control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.groups import make_group
from dslint.probe.timeout_facts import call_and_value

_TYPE = r"TypeError: Expected timeout argument to be of type datetime\.timedelta"

EXPERIMENT = Experiment(
    name="timeout-not-timedelta",
    summary="a number as timeout of a process group raises TypeError on every rank",
    rules=("DSL221",),
    expect=Expect((Kind.RAISE,), _TYPE),
    cases=(
        Case("init_process_group", {"call": "init_process_group", "value": 1800}),
        Case("new_group", {"call": "new_group", "value": 1800}),
        Case("monitored_barrier", {"call": "monitored_barrier", "value": 30}),
        Case("monitored_barrier-float", {"call": "monitored_barrier", "value": 30.0}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The value as it stands."""
    return _call(rank, rank.params["value"])


def fixed(rank: RankApi) -> Json:
    """A timedelta of so many seconds (1,800 when the value is no number)."""
    from datetime import timedelta

    value = rank.params["value"]
    return _call(rank, timedelta(seconds=value if isinstance(value, int | float) else 1800))


def _call(rank: RankApi, timeout: Any) -> str:
    import torch.distributed as dist

    call = rank.params["call"]
    if call == "init_process_group":
        make_group(rank, timeout)
        return "process group made"
    rank.init()
    if call == "new_group":
        dist.new_group(timeout=timeout)
    else:
        dist.monitored_barrier(timeout=timeout)
    return "no error"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call and the value of the finding."""
    return call_and_value(subject, case)
