"""Loops over micro batches: which number of them makes one step of the optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dslint.python.events import Loop
from dslint.python.queries.turns import Turns
from dslint.python.values import Const
from dslint.rules.runs import Happening, RunQuery

STEPS = ("optimizer-step", "scaler-step", "steps")


def inside(loop: Loop, found: Iterable[Happening]) -> list[Happening]:
    """Return what happens in a loop."""
    return [happening for happening in found if any(node is loop for node in happening.around)]


def divisor_of_steps(turns: Turns, steps: Sequence[Happening]) -> object:
    """Return the number by which that of the turn is divided for all steps; `None` where there is no one."""
    found = {turns.divisor(turns.tests(step.around, step.event)) for step in steps}
    return found.pop() if len(found) == 1 else None


def size_of_group(run: RunQuery, divisor: object) -> int | None:
    """Return how many micro batches a step takes, by the code or by the default of an option."""
    if isinstance(divisor, Const):
        return divisor.value if isinstance(divisor.value, int) else None
    default = run.machine.defaults.get(divisor)
    known = default.constants if default is not None else None
    return known[0] if known is not None and len(known) == 1 and type(known[0]) is int else None
