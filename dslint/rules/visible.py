"""Writes of `CUDA_VISIBLE_DEVICES` by a script, and whether it starts processes that read them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.python.environment import SET
from dslint.python.values import Value
from dslint.rules.runs import Happening, RunQuery

VARIABLE = "CUDA_VISIBLE_DEVICES"
# Modules whose functions start processes, each of which runs a part of the program with an environment of its own.
STARTING = re.compile(
    r"(?m)^\s*(?:import|from)\s+(?:ray|subprocess|torch\.multiprocessing|multiprocessing|concurrent\.futures)\b"
)


def writes(run: RunQuery) -> Iterator[tuple[Happening, Value]]:
    """Yield the places where a run writes the variable, with what it writes; none where it starts processes."""
    if run.has("spawns", "runs-command"):
        return
    for found in run.happenings("sets-environment"):
        event = found.event
        is_write = event.api == SET and event.arguments["name"].constants == (VARIABLE,)
        if is_write and not event.module.search(STARTING):
            yield found, event.arguments["value"]
