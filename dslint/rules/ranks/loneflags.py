"""Flags that steer the loop of a library, set on some ranks only: `trainer.should_stop = True`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.python.events import Alt
from dslint.python.queries.order import following
from dslint.python.varies import CLOCK, DATA, RANKED
from dslint.rules.ranks import parted

if TYPE_CHECKING:
    from dslint.rules.runs import Happening, RunQuery

_TELLS = re.compile(r"reduce|gather|broadcast|bcast")
# Calls that all ranks make together, and that tell none of them what another has decided.
_TELL_NOTHING = frozenset({"barrier", "saves-collective", "state-dict-collective"})
_OWN = RANKED | DATA | CLOCK


def lone_flags(run: RunQuery) -> Iterator[tuple[Happening, list[Alt]]]:
    """Yield where a flag is set that nothing tells the others, with the tests that only some ranks pass.

    There is no such test where the flag gets a value that each rank has for itself: `should_stop = time() > end`.
    """
    for happening in run.happenings("steers-loop"):
        event = happening.event
        value = event.arguments.get("value")
        if value is None or not isinstance(event.node, ast.Attribute):
            continue
        is_own = is_own_value(run, happening)
        if value.constants != (True,) and not is_own:
            continue
        tests = [n for n in happening.around if isinstance(n, Alt) and _is_own(run, n)]
        if (is_own or tests or parted.are_some(run, event.lanes)) and not _is_told(happening):
            yield happening, tests


def is_own_value(run: RunQuery, happening: Happening) -> bool:
    """Return whether a flag is given the answer that each rank finds by its own clock or data."""
    value = happening.event.arguments.get("value")
    return value is not None and not value.constants and bool(run.machine.varies(value) & (DATA | CLOCK))


def _is_own(run: RunQuery, test: Alt) -> bool:
    """Return whether a test lets some ranks pass and others not: by their number, or by what each has for itself."""
    sides = test.then_lanes, test.else_lanes
    return bool(test.varies & _OWN) or any(parted.are_some(run, lanes) for lanes in sides)


def _is_told(happening: Happening) -> bool:
    """Return whether the function hands values on among the ranks afterwards."""
    event = happening.event
    if any("collective" in e.tags and not e.tags & _TELL_NOTHING for e in following(happening.entry.tree, event)):
        return True
    return _TELLS.search(parted.code_after(event.module, event.node)) is not None
