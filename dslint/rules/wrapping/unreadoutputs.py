"""Outputs of a DDP model that nothing of a training step reads: the layers behind them get no gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.python.events import Call, Event, Seq, events, walk
from dslint.python.queries.skipped import is_frozen
from dslint.python.source import Module
from dslint.python.values import Function, Instance
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.droppedoutputs import Branch, branches, differentiable, places_of, scope_of

if TYPE_CHECKING:
    from dslint.rules.runs import RunQuery


@dataclass(frozen=True, slots=True)
class Unread:
    """A branch whose output no training step reads, and a forward pass that gives it."""

    branch: Branch
    forward: Event


def unread_outputs(run: RunQuery, tree: Seq, wrapper: Instance) -> Iterator[Unread]:
    """Yield the branches of a wrapped model whose outputs are left lying in all forward passes with gradients."""
    frozen = {id(event) for node in walk(tree) if is_frozen(node) for event in events(node)}
    forwards = [
        event
        for event in events(tree)
        if "ddp-forward" in event.tags and wrapper in instances(event.receiver) and id(event) not in frozen
    ]
    calls = [node for node in walk(tree) if isinstance(node, Call) and isinstance(node.function, Function)]
    given = branches(run, wrapper) if forwards else []
    read = [_read(event, calls) for event in forwards] if len(given) > 1 or given else []
    if not read or any(found is None for found in read):
        return
    taken = {place for found in read for place in found or ()}
    if taken:  # else the step reads the outputs in a way of its own
        yield from (Unread(branch, forwards[0]) for branch in given if branch.place not in taken)


def _read(event: Event, calls: list[Call]) -> set[int | str] | None:
    """Return the outputs of a forward pass that are read, by place or key; `None` where that is not known."""
    scope = scope_of(event.module, event.node)
    parents = {id(child): node for node in ast.walk(scope) for child in ast.iter_child_nodes(node)}
    above = parents.get(id(event.node))
    if isinstance(above, ast.Subscript) and above.value is event.node:
        return _key(above)
    if not isinstance(above, ast.Assign) or len(above.targets) != 1:
        return None
    target = above.targets[0]
    if isinstance(target, ast.Tuple):
        return _unpacked(event.module, scope, target, calls)
    return _of_object(event.module, scope, target.id, calls) if isinstance(target, ast.Name) else None


def _unpacked(module: Module, scope: ast.AST, target: ast.Tuple, calls: list[Call]) -> set[int | str] | None:
    found: set[int | str] = set()
    for at, name in enumerate(target.elts):
        if not isinstance(name, ast.Name):
            return None
        if any(
            next(differentiable(function, word), None) for _, function, word in _where(module, scope, name.id, calls)
        ):
            found.add(at)
    return found


def _where(module: Module, scope: ast.AST, name: str, calls: list[Call]) -> Iterator[tuple[Module, ast.AST, str]]:
    """Yield where a variable is read: in its function; a call that it is passed to counts as a read there."""
    yield next(places_of(module, scope, name, calls))


def _of_object(module: Module, scope: ast.AST, name: str, calls: list[Call]) -> set[int | str] | None:
    """Return the parts of one object that are read, also in functions of the project that get it."""
    found: set[int | str] = set()
    followed = list(places_of(module, scope, name, calls))
    handed = {id(call.node) for call in calls}
    for _, function, word in followed:
        parents = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(function):
            if not isinstance(node, ast.Name) or node.id != word or not isinstance(node.ctx, ast.Load):
                continue
            above = parents.get(id(node))
            keys = _key(above) if isinstance(above, ast.Subscript) and above.value is node else None
            if keys is not None:
                found |= keys
            elif not (isinstance(above, ast.Call) and id(above) in handed and len(followed) > 1):
                return None
    return found


def _key(node: ast.Subscript) -> set[int | str] | None:
    key = node.slice
    return {key.value} if isinstance(key, ast.Constant) and isinstance(key.value, int | str) else None
