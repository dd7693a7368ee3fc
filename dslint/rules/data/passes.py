"""Loops over loaders that train a model, and the loops around them that begin them anew."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dslint.python.events import Call, Event, Loop, Lost, walk
from dslint.python.source import Module
from dslint.python.values import Function
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery

_TRAINS = ("backward", "engine-backward", "engine-step")
# The same in code that the interpreter has given up.
_TRAINS_BY_NAME = re.compile(r"(?:manual_)?backward|step|train(?:ing)?_(?:batch|step)|train_\w+")
_COUNTERS = re.compile(r"t?range|count")
Place = tuple[Module, ast.AST]


@dataclass(frozen=True, slots=True)
class Pass:
    """A loop over what a call (`loader`) has made, which trains in it; `outer` begins it again and again.

    `modules` are those of the code that leads to the step.
    """

    loader: ast.AST
    loop: Place
    outer: Place
    modules: dict[Module, None]


def repeated_passes(run: RunQuery) -> Iterator[Pass]:
    """Yield each loop over a loader that trains and that another one repeats."""
    seen: set[tuple[int, int]] = set()
    for step in run.occurrences(*_TRAINS):
        loops = [node for node in step.around if isinstance(node, Loop)]
        for at, loop in enumerate(loops):
            for loader in loop.items:
                outers = [o for o in loops[: at + 1] if _repeats(o) and (o is not loop or loader in o.begun)]
                outers = outers or ([loop] if loader in run.machine.restarts else [])
                if outers and (id(loader), id(loop.node)) not in seen:
                    seen.add((id(loader), id(loop.node)))
                    outer = outers[-1]
                    yield Pass(loader, (loop.module, loop.node), (outer.module, outer.node), _modules(step))
    if any(isinstance(node, Lost) for _, tree in run.trees() for node in walk(tree)):
        known = {loader for loader, _ in seen}
        for made in run.happenings("makes-loader"):
            if id(made.event.node) not in known:
                yield from _read(made.event)


def _modules(step: Happening) -> dict[Module, None]:
    found = {step.event.module: None, step.entry.module: None}
    for node in step.around:
        if isinstance(node, Loop | Call):
            found[node.module] = None
        if isinstance(node, Call) and isinstance(node.function, Function):
            found[node.function.module] = None
    return found


def _repeats(loop: Loop) -> bool:
    """Return whether a loop counts (epochs, steps) or waits for a condition, and does not leave in its first turn."""
    return _waits(loop.node) if isinstance(loop.node, ast.While) else loop.counts


def _waits(loop: ast.While) -> bool:
    return not isinstance(loop.body[-1], ast.Break | ast.Return)


def _read(event: Event) -> Iterator[Pass]:
    """Yield the loops over a loader as the code has them, by the name that it gets: the run was given up there."""
    function = function_around(event.module, event.node)
    if function is None:
        return
    named = _assigned(ast.walk(function), lambda value: value is event.node)
    is_returned = any(isinstance(n, ast.Return) and n.value and _names(n.value) & named for n in ast.walk(function))
    nodes = list(ast.walk(event.module.tree if is_returned else function))
    named |= _assigned(nodes, lambda value: bool(_passed(value) & named))
    counters = _assigned(nodes, _counts)
    for outer in nodes:
        if isinstance(outer, ast.For):
            is_repeating = _counts(outer.iter) or bool(_names(outer.iter) & counters)
        else:
            is_repeating = isinstance(outer, ast.While) and _waits(outer)
        inner = [n for n in ast.walk(outer) if isinstance(n, ast.For) and n is not outer] if is_repeating else []
        for loop in inner:
            if _names(loop.iter) & named and any(_is_step(node) for node in ast.walk(loop)):
                yield Pass(event.node, (event.module, loop), (event.module, outer), {event.module: None})


def _assigned(nodes: Iterable[ast.AST], is_meant: Callable[[ast.expr], bool]) -> set[str]:
    """Return the names that are assigned such values."""
    found = (node for node in nodes if isinstance(node, ast.Assign) and is_meant(node.value))
    return {target.id for node in found for target in node.targets if isinstance(target, ast.Name)}


def _passed(value: ast.expr) -> set[str]:
    """Return the name that is the first argument of a call: `tqdm(loader)`."""
    first = value.args[0] if isinstance(value, ast.Call) and value.args else None
    return {first.id} if isinstance(first, ast.Name) else set()


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _counts(over: ast.expr) -> bool:
    """Return whether an expression counts, and not to one."""
    calls = [n for n in ast.walk(over) if isinstance(n, ast.Call) and _COUNTERS.fullmatch(_name(n))]
    return any(not (c.args and isinstance(c.args[-1], ast.Constant) and c.args[-1].value in (0, 1)) for c in calls)


def _is_step(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and bool(_TRAINS_BY_NAME.fullmatch(_name(node)))
    )


def _name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", "") or getattr(call.func, "id", ""))


def goes_over_models(loop: Loop, event: Event) -> bool:
    """Return whether what runs is the item of the loop itself: `for reward in rewards: reward(batch)`."""
    target = getattr(loop.node, "target", None)
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)} if target is not None else set()
    func = event.node.func if isinstance(event.node, ast.Call) else None
    return isinstance(func, ast.Name) and func.id in names
