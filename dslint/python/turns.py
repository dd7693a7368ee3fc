"""Numbers of turns: what counts them (`enumerate`, `range`), told apart by loop and turn so that tests can be compared.

The number of a turn stands in `Value.number` as `("turn", loop, turn)`; what is computed from it says how. A `range` or
an `enumerate` that no loop goes through yet gives `("counts", unique, first, step)`.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from dslint.python.heap import Heap
from dslint.python.values import Const, Tuple, Value

_TURN, _COUNTS = "turn", "counts"
_MAX_DEPTH = 3


def counting(m: Heap, item: Value, first: Value, step: Value | None = None) -> Value:
    """Return the number that an iterator counts, which begins at `first`; as it was where nobody knows where."""
    start, by = first.single, step.single if step is not None else Const(1)
    if not isinstance(start, Const) or not isinstance(by, Const) or {start.kind, by.kind} != {int}:
        return item
    return replace(item, number=(_COUNTS, m.number(), start, by))


def of_turn(m: Heap, item: Value, loop: int, depth: int = 0) -> Value:
    """Return what a loop hands out, with numbers of the turn in place of numbers that an iterator counts."""
    number = item.number
    if isinstance(number, tuple) and number and number[0] == _COUNTS:
        return replace(item, number=_placed(m, loop, number[2], number[3]))
    atom = item.single
    if not isinstance(atom, Tuple) or depth > _MAX_DEPTH or not item.atoms:
        return item
    if atom.cls == "builtins.tuple":
        parts = tuple(of_turn(m, part, loop, depth + 1) for part in atom.items)
        if any(new is not old for new, old in zip(parts, atom.items, strict=True)):
            return Value(
                frozenset((Tuple(parts, atom.cls),)), item.varies, item.shape, item.made_by, item.number, item.origin
            )
    return item


def of_range(m: Heap, subject: Value, item: Value, loop: int) -> Value:
    """Return the number that a loop over a short `range` hands out."""
    atom = subject.single
    if not isinstance(atom, Tuple) or atom.cls != "builtins.range" or len(atom.items) < 2:
        return item
    first, second = atom.items[0].single, atom.items[1].single
    if not isinstance(first, Const) or not isinstance(second, Const) or not isinstance(first.value, int):
        return item
    assert isinstance(second.value, int)
    return replace(item, number=_placed(m, loop, first, Const(second.value - first.value)))


def _placed(m: Heap, loop: int, first: Const, step: Const) -> object:
    turn: object = (_TURN, loop, m.turn)
    if step.value != 1:
        turn = (ast.Mult, (turn, step))
    return turn if first.value == 0 else (ast.Add, (turn, first))


def is_turn(number: object) -> bool:
    """Return whether a number is that of a turn, as it is."""
    return isinstance(number, tuple) and len(number) == 3 and number[0] == _TURN
