"""Objects of the project that are iterated over: what their `__iter__` and `__next__` give, and what ends it."""

from __future__ import annotations

import ast

from dslint.python.heap import Outcome
from dslint.python.machine import Machine
from dslint.python.values import Instance, Value, one, unknown
from dslint.python.varies import DIVERGENT


def own_items(m: Machine, atom: Instance, node: ast.AST, picked: int) -> Value | None:
    """Return what an iteration over an object of a project's class gives; `picked`: as for `items_of`."""
    from dslint.python.invoke import call_method
    from dslint.python.loops import items_of

    own = call_method(m, one(atom), "__iter__", [], node)
    if own is not None and own.atoms:
        if own == one(atom):
            return _next_item(m, atom, node)
        return items_of(m, own, node, picked)
    return call_method(m, one(atom), "__getitem__", [unknown("opaque", "position", picked, 0, "builtins.int")], node)


def _next_item(m: Machine, atom: Instance, node: ast.AST) -> Value | None:
    """Return what `__next__` of an object of the project gives; where it raises `StopIteration`, the loop ends."""
    from dslint.python.invoke import call_method

    raised: list[Outcome] = []
    m.tries.append((m.store.mark(), raised))
    found = call_method(m, one(atom), "__next__", [], node)
    m.tries.pop()
    loop = m.frame.loops[-1].tree if m.frame.loops else None
    if loop is not None and loop.node is node:
        loop.varies |= ends_differ(raised)
    return found


def ends_differ(raised: list[Outcome]) -> int:
    """Return the causes for which some ranks come to `raise StopIteration` and others do not."""
    found = 0
    for outcome in raised:
        atoms = outcome.value.atoms if outcome.value is not None else ()
        if any(isinstance(atom, Instance) and atom.cls == "builtins.StopIteration" for atom in atoms):
            found |= outcome.control & DIVERGENT
    return found
