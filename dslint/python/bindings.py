"""Names that nothing has bound yet: on some ranks only, where a test of the rank binds them, or on all.

A value that only some ranks have put into a variable is a value of its own, so that the variable is known by it for as
long as nothing else is stored there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.python.events import Event
from dslint.python.values import Instance, Value, const

if TYPE_CHECKING:
    from dslint.python.heap import Outcome
    from dslint.python.machine import Machine
    from dslint.python.source import Module
    from dslint.python.store import Key

UNBOUND = "unbound-name"


@dataclass(frozen=True, slots=True)
class Partly:
    """A value that a variable holds, the ranks on which nothing has bound it, and the test that has parted them."""

    key: Key
    value: Value
    lanes: int
    split: tuple[Module, ast.AST] | None


def marked(m: Machine, key: Key, found: Value, outcomes: list[Outcome], base: Value | None) -> Value:
    """Return what a variable holds where ways meet, as a value of its own where it is certainly unbound on some."""
    owner, name = key
    if isinstance(owner, Instance) or not isinstance(name, str) or name.startswith("#"):
        return found
    bound = unbound = 0
    split = m.split
    for outcome in outcomes:
        value = outcome.changes.get(key, base)
        part = m.partly.get(id(value)) if m.partly else None
        if value is None or not value.atoms:
            unbound |= outcome.lanes
        elif part is not None and part.value is value and part.key == key:
            unbound |= outcome.lanes & part.lanes
            bound |= outcome.lanes & ~part.lanes
            split = part.split
        else:
            bound |= outcome.lanes
    missing = unbound & ~bound
    if not missing or not bound:
        return found
    own = Value(found.atoms, found.varies, found.shape, found.made_by, found.number, found.origin)
    m.partly[id(own)] = Partly(key, own, missing, split)
    return own


def noted(m: Machine, found: Value, owner: object, name: str, node: ast.AST) -> Value:
    """Return what a name holds, and note that ranks come here on which nothing has bound it."""
    part = m.partly.get(id(found))
    is_own = part is not None and part.value is found and part.key == (owner, name)
    if part is not None and is_own and m.lanes & part.lanes and m.alive:
        _note(m, found, name, node, m.lanes & part.lanes, part.split)
    return found


def note_unbound(m: Machine, name: str, node: ast.AST) -> None:
    """Note that nothing has bound a local name on the way to this place, on no rank."""
    if m.alive and m.frame.function is not None and m.frame.class_body is None and not m.frame.is_comprehension:
        _note(m, None, name, node, m.lanes, None)


def _note(
    m: Machine, found: Value | None, name: str, node: ast.AST, missing: int, split: tuple[Module, ast.AST] | None
) -> None:
    given = {"name": const(name), "missing": const(missing)}
    event = Event(
        f"builtins.{name}", frozenset((UNBOUND,)), node, m.frame.module, found, given, None, m.lanes, m.control
    )
    if split is not None:
        event.origins["name"] = split
    m.events.append(event)
