"""Comparisons, and what a test says about the names in it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from dslint.python import arithmetic, connectives, containers, expressions, ragged, ranktexts
from dslint.python.machine import Machine
from dslint.python.operators import COMPARE, apply
from dslint.python.special import compare_method
from dslint.python.values import (
    OPAQUE,
    Api,
    ClassAtom,
    Const,
    Function,
    Instance,
    PerRank,
    Tuple,
    Unknown,
    Value,
    const,
)
from dslint.python.varies import CHOSEN, DATA, MISSING, RANDOM, RANKED, WORLD

# The releases of Python between which a script may run.
_PYTHONS = ((3, 8), (3, 99))
_ORDERED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _compare(m: Machine, node: ast.Compare) -> Value:
    left = expressions.evaluate(m, node.left)
    right = expressions.evaluate(m, node.comparators[0])
    found = compared(m, type(node.ops[0]), left, right, node)
    for op, operand in zip(node.ops[1:], node.comparators[1:], strict=True):
        if not m.alive:
            return found
        found, right = _and_compared(m, found, type(op), right, operand, node)
    return found


def _and_compared(
    m: Machine, before: Value, op: type[ast.cmpop], left: Value, operand: ast.expr, node: ast.Compare
) -> tuple[Value, Value]:
    """Go on with `a < b < c` where `a < b` holds; return the value of the test, and `c`."""
    right = [left]

    def more() -> Value:
        right[0] = expressions.evaluate(m, operand)
        return compared(m, op, left, right[0], node)

    return connectives.one_more(m, before, operand, more, operand, is_and=True), right[0]


def compared(m: Machine, op: type[ast.cmpop], left: Value, right: Value, node: ast.AST) -> Value:
    """Return the value of one comparison."""
    ranktexts.note_compared(m, op, left, right, node)
    limit = _beyond(m, op, left, right) or _release_of_python(op, left, right)
    if limit is not None:
        return limit
    found = apply(m.worlds, COMPARE[op], (left, right))
    if found is not None:
        if found.varies & WORLD and not found.varies & RANKED and _is_small(left, right):
            return Value(found.atoms, found.varies & ~WORLD, found.shape, found.made_by, found.number, found.origin)
        return found
    if op in (ast.Is, ast.IsNot, ast.Eq, ast.NotEq):
        decided = _identity(m, op, left, right)
        if decided is not None:
            return decided
    own = compare_method(m, op, left, right, node)
    if own is not None:
        return own
    if op in (ast.In, ast.NotIn):
        inside = containers.contains(m, left, right)
        if inside is not None:
            return inside if op is ast.In else arithmetic.negated(m, inside)
    number = _test_number(op, left, right)
    if arithmetic._tensor(m, left, right) and op not in (ast.Is, ast.IsNot, ast.In, ast.NotIn):
        made = m.thing(node, "comparison of tensors", (left, right), arithmetic._tensor(m, left, right))
        return ragged.compared(m, (left, right), made, node)
    identity = op in (ast.Is, ast.IsNot) and _is_none(right)
    operands = (left, right)
    by_item = op not in (ast.Is, ast.IsNot, ast.In, ast.NotIn) and any(_may_be_array(m, value) for value in operands)
    found = arithmetic.scalar(m, operands, "" if by_item else "builtins.bool", number)
    if identity:
        # Whether something is there at all differs where its atoms do, not where its contents do.
        bits = left.varies
        if any(isinstance(atom, Const) and atom.value is None for atom in left.atoms):
            # Where `None` stands beside each rank's own data, the data decide which of them it is.
            data = m.varies(left) & (DATA | RANDOM)
            bits |= data | (CHOSEN if _is_chosen(left) else MISSING) if data else 0
        return Value(found.atoms, bits, 0, frozenset(), number, m.origin(left))
    if op in (ast.In, ast.NotIn):
        bits = found.varies | m.shape(right)
        if isinstance(left.single, Const) and isinstance(left.single.value, str):
            bits = left.varies | right.varies  # keys are mostly the same everywhere, whatever they hold
            bits |= containers.lacks_by_rank(m, right, left.single.value)
        return Value(found.atoms, bits, 0, frozenset(), None, found.origin)
    return found


def _is_chosen(value: Value) -> bool:
    """Return whether each rank's own data decide which it is, `None` or an object made."""
    known = (isinstance(a, Const) or (isinstance(a, Instance) and bool(a.cls)) for a in value.atoms)
    return bool(value.varies & (DATA | RANDOM)) and all(known)


def _may_be_array(m: Machine, value: Value) -> bool:
    """Return whether a value is a piece of the data, which compares item by item where it is a tensor."""
    if not m.varies(value) & DATA:
        return False
    return any((isinstance(a, Unknown) and not a.type) or (isinstance(a, Instance) and not a.cls) for a in value.atoms)


def _test_number(op: type[ast.cmpop], left: Value, right: Value) -> object:
    """Return the number of a comparison: the same for `a == b`, `b == a` and, turned round, `a != b`."""
    sides = None if op in (ast.In, ast.NotIn) else arithmetic._numbers(left, right)
    if not isinstance(sides, tuple):
        return None
    if op in (ast.NotEq, ast.IsNot):
        return ("not", (ast.Eq if op is ast.NotEq else ast.Is, frozenset(sides)))
    return (op, frozenset(sides) if op in (ast.Eq, ast.Is) else sides)


def _is_small(*values: Value) -> bool:
    """Return whether one side is a constant that no world of several ranks can equal or undercut."""
    for value in values:
        atom = value.single
        if isinstance(atom, Const) and isinstance(atom.value, int) and atom.value <= 1:
            return True
    return False


def _beyond(m: Machine, op: type[ast.cmpop], left: Value, right: Value) -> Value | None:
    """Compare a rank with a number larger than every rank that is looked at: unknown, and different by rank."""
    if m.worlds.stated:
        return None
    for ranked, other in ((left, right), (right, left)):
        atom, number = ranked.single, other.single
        if not isinstance(atom, PerRank) or not isinstance(number, Const) or not isinstance(number.value, int):
            continue
        if number.value > m.worlds.larger and ranked.varies & RANKED:
            return Value(frozenset((Unknown(OPAQUE, "a rank of a larger world", "builtins.bool"),)), ranked.varies)
    return None


def _release_of_python(op: type[ast.cmpop], left: Value, right: Value) -> Value | None:
    """Decide `sys.version_info < (3, 8)`, where every release of Python that runs torch today says the same."""
    asked, given = left.single, right.single
    if not isinstance(asked, Api) or asked.path != "sys.version_info" or not isinstance(given, Tuple):
        return None
    numbers = tuple(item.single.value for item in given.items if isinstance(item.single, Const))
    if len(numbers) != len(given.items) or not all(isinstance(n, int) for n in numbers) or op not in _ORDERED:
        return None
    oldest, newest = (_ORDERED[op](release, numbers) for release in _PYTHONS)
    return const(oldest) if oldest == newest else None


def _is_none(value: Value) -> bool:
    atom = value.single
    return isinstance(atom, Const) and atom.value is None


def _identity(m: Machine, op: type[ast.cmpop], left: Value, right: Value) -> Value | None:
    """Decide `x is None` and comparisons of things that are certainly different kinds of things."""
    negative = op in (ast.IsNot, ast.NotEq)
    for value, other in ((left, right), (right, left)):
        if not _is_none(other):
            continue
        nones = [a for a in value.atoms if isinstance(a, Const) and a.value is None]
        if not nones and all(_never_none(m, atom) for atom in value.atoms):
            return const(negative)
        if len(nones) == len(value.atoms) and nones:
            return const(not negative)
        return None
    sides = (left, right), (right, left)
    if any(_are_all(one, (Function, ClassAtom)) and _are_all(two, Const) for one, two in sides):
        return const(negative)
    return None


def _are_all(value: Value, kinds: type | tuple[type, ...]) -> bool:
    return bool(value.atoms) and all(isinstance(atom, kinds) for atom in value.atoms)


def _never_none(m: Machine, atom: object) -> bool:
    if isinstance(atom, Const):
        return atom.value is not None
    if isinstance(atom, Unknown):
        return atom.type != ""
    if isinstance(atom, PerRank):
        return None not in atom.values
    if isinstance(atom, Instance):
        return atom.cls != ""
    if not isinstance(atom, Api):
        return True
    held = m.libraries.value(atom.path)
    is_object = m.libraries.function(atom.path) is not None or m.libraries.class_(atom.path) is not None
    return is_object or (held is not None and "all-ranks" in held.tags)
