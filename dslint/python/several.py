"""What one expression gives where its operand may be one of several objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dslint.python.heap import CONTENT
from dslint.python.places import ordered
from dslint.python.values import NOTHING, Atom, Instance, Value, join

if TYPE_CHECKING:
    from dslint.python.machine import Machine


def of_each(m: Machine, value: Value, read: Callable[[Atom], Value]) -> Value:
    """Return what `read` gives for any of the objects: what it makes at one place holds what any of them has given."""
    if len(value.atoms) == 1:
        (atom,) = value.atoms
        return read(atom)
    found = NOTHING
    contents: dict[Atom, Value] = {}
    for atom in ordered(value.atoms):
        given = read(atom)
        for made in given.atoms:
            content = m.store.get((made, CONTENT)) if isinstance(made, Instance) else None
            if content is not None:
                contents[made] = join(contents.get(made, NOTHING), content)
                m.store.set((made, CONTENT), contents[made])
        found = join(found, given)
    return found
