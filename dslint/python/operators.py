"""Operators on constants and on values that depend on the rank: Python itself computes, lane by lane."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from dslint.python.lanes import Worlds
from dslint.python.values import UNKNOWN_LANE, Atom, Const, PerRank, Tuple, Value
from dslint.python.varies import RANKED, WORLD

# Results larger than this are not computed.
_MAX_SIZE = 4_000
_MAX_COMBINATIONS = 16

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda a, b: a is b or (a == b and type(a) is type(b) and isinstance(a, int | str | tuple)),
    ast.IsNot: lambda a, b: not (a is b or (a == b and type(a) is type(b) and isinstance(a, int | str | tuple))),
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class NotConstantError(Exception):
    """The result cannot be computed from constants."""


def python_value(atom: Atom) -> object:
    """Return the Python object of a constant or of a tuple of constants.

    Raises:
        NotConstantError: for any other atom.
    """
    if isinstance(atom, Const):
        return atom.value
    if isinstance(atom, Tuple) and atom.is_tuple:
        found = []
        for item in atom.items:
            single = item.single
            if single is None:
                raise NotConstantError
            found.append(python_value(single))
        return tuple(found)
    raise NotConstantError


def apply(worlds: Worlds, function: Callable[..., Any], operands: Iterable[Value]) -> Value | None:
    """Return the value of a function of constants and values by rank; `None` where an operand is neither."""
    values = list(operands)
    choices = [list(value.atoms) for value in values]
    count = 1
    for atoms in choices:
        count *= len(atoms)
    if not 0 < count <= _MAX_COMBINATIONS:
        return None
    varies = shape = 0
    for value in values:
        varies |= value.varies
        shape |= value.shape
    found: set[Atom] = set()
    ranked = 0
    for combination in product(*choices):
        atom = _computed(worlds, function, combination)
        if atom is None:
            return None
        if isinstance(atom, PerRank):
            ranked |= worlds.varies(atom.values, worlds.full)
        found.add(atom)
    if any(isinstance(atom, PerRank) for atoms in choices for atom in atoms):
        # The causes that are computed lane by lane are known exactly.
        only = all(isinstance(a, Const | PerRank) for atoms in choices for a in atoms) and count == 1
        varies = ranked | (varies & ~(RANKED | WORLD)) if only else varies | ranked
    made_by = frozenset().union(*(value.made_by for value in values)) if values else frozenset()
    number = _number(function, values)
    return Value(frozenset(found), varies, shape if found else 0, made_by, number, _origin(values))


def _number(function: Callable[..., Any], values: list[Value]) -> object:
    numbers = tuple(value.number if value.number is not None else value.single for value in values)
    if any(number is None for number in numbers):
        return None
    if function in (operator.eq, operator.ne):
        equal = (operator.eq, frozenset(numbers))
        return equal if function is operator.eq else ("not", equal)
    return function, numbers


def _origin(values: list[Value]) -> Any:
    return next((value.origin for value in values if value.origin), None)


def _computed(worlds: Worlds, function: Callable[..., Any], atoms: tuple[Atom, ...]) -> Atom | None:
    if any(isinstance(atom, PerRank) for atom in atoms):
        return _per_lane(worlds, function, atoms)
    try:
        return constant_atom(function(*[python_value(atom) for atom in atoms]))
    except NotConstantError:
        return None
    except Exception:  # what the program does there raises; nothing is known behind it
        return None


def _per_lane(worlds: Worlds, function: Callable[..., Any], atoms: tuple[Atom, ...]) -> Atom | None:
    columns: list[tuple[object, ...]] = []
    try:
        for atom in atoms:
            columns.append(atom.values if isinstance(atom, PerRank) else (python_value(atom),) * worlds.count)
    except NotConstantError:
        return None
    found: list[object] = []
    for row in zip(*columns, strict=True):
        if UNKNOWN_LANE in row:
            found.append(UNKNOWN_LANE)
            continue
        try:
            value = function(*row)
        except Exception:
            found.append(UNKNOWN_LANE)
            continue
        if not is_plain(value):
            return None
        found.append(value)
    return per_rank(tuple(found))


def per_rank(values: tuple[object, ...]) -> Atom:
    """Return one constant where all lanes hold the same, else a value by rank."""
    first = values[0]
    if first is not UNKNOWN_LANE and all(type(v) is type(first) and v == first for v in values):
        return Const(first)
    return PerRank(values)


def is_plain(value: object) -> bool:
    """Return whether a value is a constant that is kept: a number, a short text, `None`, a small tuple of them."""
    if value is None or isinstance(value, bool | float):
        return True
    if isinstance(value, int):
        return abs(value) < 1 << 128
    if isinstance(value, str | bytes):
        return len(value) <= _MAX_SIZE
    return isinstance(value, tuple) and len(value) <= 64 and all(map(is_plain, value))


def constant_atom(value: object) -> Atom:
    """Return the atom of a plain value.

    Raises:
        NotConstantError: when it is none.
    """
    if isinstance(value, tuple) and is_plain(value):
        return Tuple(tuple(Value(frozenset((constant_atom(item),))) for item in value))
    if not is_plain(value):
        raise NotConstantError
    return Const(value)


def guarded_multiply(a: Any, b: Any) -> Any:
    """Multiply unless the result would be huge."""
    for text, times in ((a, b), (b, a)):
        if isinstance(text, str | bytes | tuple) and isinstance(times, int) and len(text) * times > _MAX_SIZE:
            raise NotConstantError
    return a * b


def guarded_power(a: Any, b: Any) -> Any:
    """Raise to a power unless the result would be huge."""
    if not (isinstance(a, int | float) and isinstance(b, int | float) and abs(b) <= 64 and abs(a) <= 1e6):
        raise NotConstantError
    return a**b


def guarded_shift(a: Any, b: Any) -> Any:
    """Shift to the left unless the result would be huge."""
    if not isinstance(b, int) or not 0 <= b <= 64:
        raise NotConstantError
    return a << b


BINARY[ast.Mult] = guarded_multiply
BINARY[ast.Pow] = guarded_power
BINARY[ast.LShift] = guarded_shift
