"""The timeout of a process group is `timedelta(N)`: N days, where N seconds are meant.

Nothing fails, so the arms only read back what the group will wait: as written N days, as fixed N seconds
(``timedelta(seconds=N)``). The control passes N as the second argument, which is the seconds. That a rank waits so long
for a peer that never comes cannot be shown in a probe.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.groups import make_group, timeout_of

EXPERIMENT = Experiment(
    name="timedelta-positional-days",
    summary="the process group waits so many days instead of seconds before it reports a hang",
    rules=("DSL222",),
    expect=Expect((Kind.WRONG,), r"the group waits \S+ s for a peer"),
    cases=(
        Case("days", {"value": 1800}),
        Case("days-and-seconds", {"value": 1800, "second": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_DAY = 86400


def written(rank: RankApi) -> Json:
    """`timedelta(N)`; control: `timedelta(0, N)`."""
    from datetime import timedelta

    value = rank.params["value"]
    make_group(rank, timedelta(0, value) if rank.params.get("second") else timedelta(value))
    return timeout_of(rank)


def fixed(rank: RankApi) -> Json:
    """`timedelta(seconds=N)`."""
    from datetime import timedelta

    make_group(rank, timedelta(seconds=rank.params["value"]))
    return timeout_of(rank)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A timeout in seconds, far longer than that of the fixed arm."""
    found, meant = max(values), max(reference)
    if found <= meant:
        return None
    return f"the group waits {found:.0f} s for a peer ({found / _DAY:.0f} days), where {meant:.0f} s are meant"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - one case is about findings
    """The number of the finding."""
    days = subject.finding.fact("days")
    return {} if days is None else {"value": days}
