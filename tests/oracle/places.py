"""Where ranks part: the lines that they run a different number of times, under some assignment.

A finding that says "only some ranks make this call" must stand at such a line; a call that every rank makes equally
often is the wrong place, even where the program is broken elsewhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

from oracle.judge import findings
from oracle.machine import PROGRAM, WORLDS, Machine, Outcome, combined, every_assignment, run
from oracle.stubs import Rank

# The rules whose message is about the ranks that make a call.
ABOUT_CALLS = ("DSL201", "DSL202")


def misplaced(source: str) -> tuple[int, int]:
    """How many findings of these rules there are, and how many stand at a call that all ranks make equally often."""
    found = [f for f in findings(source) if f.code in ABOUT_CALLS]
    if not found:
        return 0, 0
    lines = source.splitlines()
    uneven = uneven_lines(source)
    # Within one line an expression may choose (``barrier() if main else None``); the count of lines does not tell.
    places = [f.location.region.line for f in found]
    wrong = [at for at in places if at not in uneven and not any(w in lines[at - 1] for w in (" if ", " and "))]
    return len(found), len(wrong)


def uneven_lines(source: str) -> set[int]:
    """The lines that two ranks run a different number of times."""
    machine = Machine(source)
    lines: set[int] = set()
    for world in WORLDS:
        for flags, data in every_assignment(machine, world):
            known: tuple[Any, ...] = ()
            while True:
                watched = [_watched(machine, Rank(r, world, flags, data[r], known)) for r in range(world)]
                counts = [count for _, count in watched]
                lines |= {at for at in set().union(*counts) if len({count[at] for count in counts}) > 1}
                waiting = [outcome.waits for outcome, _ in watched if outcome.waits is not None]
                if not waiting or len(known) > 30:
                    break
                known = (*known, combined(waiting))
    return lines


def _watched(machine: Machine, me: Rank) -> tuple[Outcome, Counter[int]]:
    count: Counter[int] = Counter()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != PROGRAM:
            return None
        if event == "line":
            count[frame.f_lineno] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run(machine.code, me), count
    finally:
        sys.settrace(before)
