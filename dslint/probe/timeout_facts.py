"""What findings about timeouts say to their experiments; no arm needs it, so it stays out of reproducers."""

from __future__ import annotations

from dslint.probe.experiment import Case, Json, Subject


def call_and_value(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call and the value of the finding; a value that the rule does not know is a number all the same."""
    fact = subject.finding.fact
    if fact("call") != case.params["call"]:
        return None
    value = fact("value")
    return {"call": fact("call"), "value": 1800 if value is None else value}
