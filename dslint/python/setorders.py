"""Sets: what operators make of two, and the order of the texts in one, which is another one in each process."""

from __future__ import annotations

import ast

from dslint.python import containers, orders
from dslint.python.events import Event
from dslint.python.machine import Machine
from dslint.python.values import Const, Instance, Unknown, Value
from dslint.python.varies import RANDOM

_COMBINES = (ast.BitAnd, ast.BitOr, ast.Sub, ast.BitXor)
_SETS = frozenset({"builtins.set", "builtins.frozenset"})
# The tag of the event of a list or dictionary that follows the order of such a set.
TAG = "follows-set"
# What an iterator numbers: `enumerate(names)`.
NUMBERED = "#numbered"


def combined(m: Machine, op: type[ast.operator], left: Value, right: Value, node: ast.AST) -> Value | None:
    """Return what `a & b`, `a | b`, `a - b` or `a ^ b` makes of two sets."""
    if not issubclass(op, _COMBINES) or not _are_sets(left) or not _are_sets(right):
        return None
    bits = m.shape(left) | m.shape(right)
    values = [containers.element(m, side, node) for side in ((left,) if op is ast.Sub else (left, right))]
    return containers.new_set(m, node, values, bits)


def _are_sets(value: Value) -> bool:
    return bool(value.atoms) and all(isinstance(atom, Instance) and atom.cls in _SETS for atom in value.atoms)


def of_texts(m: Machine, value: Value, node: ast.AST) -> bool:
    """Return whether a value certainly is a set of several texts, whose hashes Python salts in each process."""
    if not _are_sets(value):
        return False
    element = containers.element(m, value, node)
    return len(element.atoms) > 0 and not _is_one(element) and all(_is_text(atom) for atom in element.atoms)


def _is_one(element: Value) -> bool:
    return isinstance(element.single, Const)


def _is_text(atom: object) -> bool:
    if isinstance(atom, Const):
        return isinstance(atom.value, str)
    kind = atom.type if isinstance(atom, Unknown) else atom.cls if isinstance(atom, Instance) else ""
    return kind == "builtins.str"


def followed(m: Machine, source: Value, made: Value, node: ast.AST) -> None:
    """Note that a new list or dictionary has the order of a set of texts, where it has one."""
    atom = made.single
    if not isinstance(atom, Instance) or not of_texts(m, source, node):
        return
    orders.mark(m, atom, (m.frame.module, node))
    event = Event("builtins.set", frozenset((TAG,)), node, m.frame.module, None, {}, made, m.lanes, m.control)
    event.drawn = RANDOM
    m.events.append(event)
