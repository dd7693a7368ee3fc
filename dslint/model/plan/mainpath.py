"""The calls that every start of a script makes, in their order: under no condition, in no loop, behind no early end."""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator

from dslint.model.plan.scriptrun import ScriptRun
from dslint.python.events import RAISE, RETURN, Alt, Call, Context, Event, Exit, Loop, Lost, Node, Seq, Try, children

# How far a place behind which nobody knows whether the program comes there ends what is certain.
_NOTHING, _FUNCTION, _SCRIPT = range(3)


def certain_events(run: ScriptRun) -> Iterator[Event]:
    """Yield the calls of libraries that the script makes however it is started."""
    yield from certain_below(run, run.entry.tree)


def certain_below(run: ScriptRun, node: Node) -> Iterator[Event]:
    """Yield the calls of libraries that are certainly made where a node of the tree runs."""
    yield from _certain(node, run.analysis.machine.worlds.full)


def _certain(node: Node, full: int) -> Generator[Event, None, int]:
    """Yield the calls below a node that run where it does; return what may end in it."""
    if isinstance(node, Event):
        if not node.may and node.lanes == full:
            yield node
        return _NOTHING
    if isinstance(node, Call):
        ended = yield from _certain(node.body, full)
        return _SCRIPT if ended == _SCRIPT else _NOTHING
    if isinstance(node, Alt) and full in (node.then_lanes, node.else_lanes) and 0 in (node.then_lanes, node.else_lanes):
        return (yield from _certain(node.then if node.then_lanes else node.orelse, full))
    if isinstance(node, Context) or (isinstance(node, Loop) and node.at_least_once):
        return (yield from _certain(node.body, full))
    if isinstance(node, Try) and not node.handlers:
        return (yield from _all((node.body, node.orelse, node.final), full))
    return (yield from _all(node.items, full)) if isinstance(node, Seq) else _may_end(node)


def _all(nodes: tuple[Node, ...] | list[Node], full: int) -> Generator[Event, None, int]:
    for node in nodes:
        ended = yield from _certain(node, full)
        if ended:
            return ended
    return _NOTHING


def _may_end(node: Node) -> int:
    """Return what a test, a loop or a statement in them may end."""
    if isinstance(node, Exit):
        # `raise` is for what should not happen, `sys.exit()` for another way to use the script.
        leaves = node.kind == RAISE and not isinstance(node.node, ast.Raise)
        return _SCRIPT if leaves else _FUNCTION if node.kind in (RETURN, RAISE) else _NOTHING
    if isinstance(node, Lost):
        return _SCRIPT
    ended = max(map(_may_end, children(node)), default=_NOTHING)
    return _SCRIPT if ended == _SCRIPT else _NOTHING if isinstance(node, Call) else ended


__all__ = ["certain_below", "certain_events"]
