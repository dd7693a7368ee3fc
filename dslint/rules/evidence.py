"""What the last recorded probe runs said of each rule. The data are recorded, never written by hand."""

from __future__ import annotations

import json
from functools import cache
from pkgutil import get_data
from typing import Any, NamedTuple


class Record(NamedTuple):
    """One case of an experiment on one platform.

    ``platform`` names the hardware ("cpu", a GPU), ``machine`` says it at length; ``versions`` are those of the
    libraries; ``seconds`` is wall time of all arms.
    """

    platform: str
    versions: dict[str, str]
    experiment: str
    case: str
    rules: tuple[str, ...]
    verdict: str
    expected: str
    seconds: float
    reason: str
    machine: str

    @property
    def is_control(self) -> bool:
        """The case must not confirm: a look-alike that passes, or an arm that says nothing."""
        return self.expected in ("NOT REPRODUCED", "INCONCLUSIVE")


@cache
def records() -> tuple[Record, ...]:
    """All records, by platform and in the order of the library."""
    data = get_data("dslint.rules", "evidence.json")
    platforms: dict[str, Any] = json.loads(data)["platforms"] if data else {}
    return tuple(
        Record(
            platform, row.get("versions", run["versions"]), row["experiment"], row["case"], tuple(row["rules"]),
            row["verdict"],
            row["expected"], row["seconds"], row["reason"], run["machine"],
        )
        for platform, run in sorted(platforms.items())
        for row in run["results"]
    )  # fmt: skip


def of_rule(code: str) -> list[Record]:
    """The records of the cases that prove a rule."""
    return [record for record in records() if code in record.rules]
