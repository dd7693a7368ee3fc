"""Parameters of models: which tensors are one, or hold the numbers of one, and the events of what reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dslint.python.events import Event
from dslint.python.joins import join
from dslint.python.libraries import READS, Row
from dslint.python.machine import Machine
from dslint.python.values import NOTHING, Instance, Value, one

# What layers call their parameters.
_NAMES = frozenset({"weight", "bias"})
# Where a tensor keeps the parameter that it is, or whose numbers it holds.
_CELL = "#parameter"
_PATH = "torch.nn.Parameter"


def note_field(m: Machine, atom: Instance, name: str, inner: Instance) -> None:
    """Note that a field which nothing has set is a parameter by its name, or the `.data` of one."""
    if name in _NAMES:
        m.store.set((inner, _CELL), one(inner))
    elif name == "data" and (held := m.store.get((atom, _CELL))) is not None:
        m.store.set((inner, _CELL), held)


def note_copy(m: Machine, row: Row, base: Value | None, result: Value) -> None:
    """Note that a call gives the numbers of a parameter on another device or in another type."""
    held = of(m, base) if base is not None and row.extra.get("values_of") == "self" else None
    if held is not None and isinstance(result.single, Instance):
        m.store.set((result.single, _CELL), held)


def of(m: Machine, value: Value) -> Value | None:
    """Return the parameters that a value is, or whose numbers it holds; `None` where it may be anything else."""
    found = NOTHING
    for atom in value.atoms:
        if not isinstance(atom, Instance):
            return None
        held = one(atom) if atom.cls == _PATH else None
        if held is None and atom.cls in ("", "torch.Tensor"):
            held = m.store.get((atom, _CELL))
        if held is None:
            return None
        found = join(found, held)
    return found if found.atoms else None


def reading(m: Machine, values: Iterable[Value], name: str, node: ast.AST) -> None:
    """Note that something reads the numbers or the shape of the first of some values that is a parameter."""
    for value in values:
        held = of(m, value)
        if held is not None:
            tags = frozenset((READS,))
            m.events.append(Event(name, tags, node, m.frame.module, held, {}, None, m.lanes, m.control))
            return
