"""Numbers that a loop counts with, as the commands that start the script give them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.source import Location
from dslint.python.events import Loop
from dslint.python.launches import Launch
from dslint.python.values import Instance, Value
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.training import ENGINE, owners_of, tests_beyond


def several(run: RunQuery, value: Value) -> tuple[int, tuple[Location, ...]] | None:
    """Return a number above 1 that a value is under some command, and where that stands; `None` where nobody says."""
    known = value.constants
    if known is not None:
        return next(((n, ()) for n in known if type(n) is int and n > 1), None) if len(known) == 1 else None
    number = value.number
    if not (isinstance(number, tuple) and len(number) == 3 and number[0] == "option"):
        return None
    told = ((_given(launch, str(number[2])), launch) for launch in run.context.launches)
    return next(((n, (at.place.labelled("the command that says so"),)) for n, at in told if n > 1), None)


def _given(launch: Launch, option: str) -> int:
    fact = launch.left.get(option)
    text = str(launch.given.get(option, fact.get_or(None) if fact is not None else None))
    return int(text) if text.isdigit() else 0


def steps_in_every_turn(run: RunQuery, backward: Happening) -> bool:
    """Return whether an engine steps after each of its backward passes, and nobody tells it where a step ends."""
    mine = set(owners_of(run, backward.event.receiver, ENGINE))
    if any(mine & _owners(run, told) for told in run.happenings("accumulate")):
        return False
    steps = [found for found in run.occurrences("engine-step") if mine & _owners(run, found)]
    return bool(steps) and not any(True for found in steps for _ in tests_beyond(found, backward))


def _owners(run: RunQuery, found: Happening) -> set[Instance]:
    return set(owners_of(run, found.event.receiver, ENGINE))


# A `continue` says that what comes after it, perhaps the way out, is for the other turns.
_ENDS = (ast.Break, ast.Return, ast.Continue)


def ends_of(loop: Loop) -> Iterator[ast.expr]:
    """Yield the tests and numbers that end a loop: its own, and those of ways out of it."""
    node = loop.node
    if isinstance(node, ast.While):
        yield node.test
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and "range" in ast.unparse(node.iter.func):
        yield from (arg for arg in node.iter.args if isinstance(arg, ast.Name | ast.Attribute))
    for inner in ast.walk(node):
        arms = [arm for arm in (inner.body, inner.orelse) if arm] if isinstance(inner, ast.If) else []
        if isinstance(inner, ast.If) and any(isinstance(arm[-1], _ENDS) for arm in arms):
            yield inner.test
