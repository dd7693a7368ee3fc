"""What one expression gives where its operand may be one of several objects."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from dslint.python.events import Event
from dslint.python.heap import CONTENT
from dslint.python.joins import join
from dslint.python.places import ordered
from dslint.python.values import NOTHING, Atom, Const, Instance, Value
from dslint.python.varies import RANKED

if TYPE_CHECKING:
    from dslint.python.machine import Machine


_NONE = Const(None)


def without_none(atoms: frozenset[Atom]) -> frozenset[Atom]:
    """Return the objects that an expression may use: `None`, where there is another one, would raise."""
    return atoms - {_NONE} if len(atoms) > 1 and _NONE in atoms else atoms


def with_member(atoms: frozenset[Atom], name: str) -> frozenset[Atom]:
    """Return the objects whose attribute an expression may read."""
    return atoms if hasattr(None, name) else without_none(atoms)


def note_none(m: Machine, base: Value, name: str, node: ast.AST) -> None:
    """Note a call of a method on ranks where the object is `None`: they raise, and the others go on.

    So do ranks that ask for its length, take an item or go through it.
    """
    if _NONE in base.atoms and len(base.atoms) > 1 and base.varies & RANKED and not hasattr(None, name) and m.alive:
        path, given = f"builtins.None.{name}", m.frame.module
        m.events.append(Event(path, frozenset(("missing-object",)), node, given, base, {}, None, m.lanes, m.control))


def of_each(m: Machine, atoms: frozenset[Atom], read: Callable[[Atom], Value]) -> Value:
    """Return what `read` gives for any of the objects: what it makes at one place holds what any of them has given."""
    if len(atoms) == 1:
        (atom,) = atoms
        return read(atom)
    found = NOTHING
    contents: dict[Atom, Value] = {}
    for atom in ordered(atoms):
        given = read(atom)
        for made in given.atoms:
            content = m.store.get((made, CONTENT)) if isinstance(made, Instance) else None
            if content is not None:
                contents[made] = join(contents.get(made, NOTHING), content)
                m.store.set((made, CONTENT), contents[made])
        found = join(found, given)
    return found


def is_alike(m: Machine, base: Value, found: Value) -> bool:
    """Return whether a call gives a data set like the one that it was called on (`rows.map(f)`): as long as that."""
    kinds = {atom.cls if isinstance(atom, Instance) else "" for atom in base.atoms}
    others = {atom.cls if isinstance(atom, Instance) else "" for atom in found.atoms}
    return kinds == others and all(isinstance(cls, str) and m.libraries.is_class(cls, "dataset") for cls in kinds)
