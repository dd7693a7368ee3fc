"""Variables of the environment that a script writes, `CUDA_VISIBLE_DEVICES` above all, and who reads that."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.python.environment import SET
from dslint.python.events import Event
from dslint.python.values import Value
from dslint.rules.runs import Happening, RunQuery

VARIABLE = "CUDA_VISIBLE_DEVICES"
# Addresses that every machine has: who meets there meets on one machine.
HERE = re.compile(r"localhost|127\.0\.0\.1")
# Modules whose functions start processes, each of which runs a part of the program with an environment of its own.
STARTING = re.compile(
    r"(?m)^\s*(?:import|from)\s+(?:ray|subprocess|torch\.multiprocessing|multiprocessing|concurrent\.futures)\b"
)


def variable_of(event: Event) -> str:
    """Return which environment variable an event writes; empty where that is not one, or not known."""
    known = event.arguments["name"].constants if event.api == SET else None
    return str(known[0]) if known is not None and len(known) == 1 else ""


def meets_here(run: RunQuery) -> bool:
    """Return whether something makes the address of the meeting this machine."""
    return any(
        variable_of(found.event) == "MASTER_ADDR"
        and any(HERE.search(str(word)) for word in found.event.arguments["value"].constants or ())
        for found in run.happenings("sets-environment")
    )


def writes(run: RunQuery) -> Iterator[tuple[Happening, Value]]:
    """Yield the places where a run writes the variable, with what it writes; none where it starts processes."""
    if run.has("spawns", "runs-command"):
        return
    for found in run.happenings("sets-environment"):
        event = found.event
        if variable_of(event) == VARIABLE and not event.module.search(STARTING):
            yield found, event.arguments["value"]
