"""Results for programs. The keys are stable within version 1."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dslint import __version__
from dslint.doctor.machine import Machine
from dslint.doctor.results import Checked, packages

FORMAT_VERSION = 1


def render(machine: Machine, results: Sequence[Checked]) -> str:
    """One JSON object."""
    checks = [
        {
            "id": result.meta.id,
            "name": result.meta.name,
            "status": result.status.value,
            "outcomes": [
                {
                    "status": outcome.status.value,
                    "found": outcome.found,
                    "reason": outcome.reason,
                    "repair": outcome.repair,
                    "fixable": outcome.lock is not None,
                }
                for outcome in result.outcomes
            ],
        }
        for result in results
    ]
    report = {
        "version": FORMAT_VERSION,
        "dslint": __version__,
        "host": machine.hostname(),
        "python": str(machine.python.executable),
        "packages": packages(machine),
        "checks": checks,
    }
    return json.dumps(report, indent=2, ensure_ascii=True) + "\n"
