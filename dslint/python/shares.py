"""Numbers and lists that are divided by the number of ranks: `size // world_size`, `items[rank::world_size]`.

Each becomes an event with the tag `shares`; a remainder (`size % world_size`) becomes one with the tag `asks-rest`, and
a run of items whose ends depend on the rank (`items[rank * n : (rank + 1) * n]`) one with the tag `takes-block`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from dslint.python.environment import COLUMNS, WORLD
from dslint.python.events import Event
from dslint.python.machine import Machine
from dslint.python.values import Const, PerRank, Value, const
from dslint.python.varies import LOST, RANKED

_WORLD = COLUMNS["world-size"]
_TAGS = {"rest": "asks-rest", "block": "takes-block"}
_DIVIDES = {ast.FloorDiv: "floor", ast.Div: "divide", ast.Mod: "rest"}


def is_world(m: Machine, value: Value | None) -> bool:
    """Return whether a value certainly is the number of ranks of the job."""
    if value is None:
        return False
    # `get_world_size() if is_initialized() else 1`
    several = value.atoms - {Const(1)}
    atom = next(iter(several)) if len(several) == 1 else value.single
    if isinstance(atom, PerRank):
        return all(found == lane[_WORLD] for found, lane in zip(atom.values, m.worlds.lanes, strict=True))
    return isinstance(atom, Const) and _is_stated(value.number)


def _is_stated(number: object) -> bool:
    """Return whether a constant is the number of ranks that a launch states, perhaps converted."""
    while isinstance(number, tuple) and len(number) == 2 and number[0] is int and isinstance(number[1], tuple):
        number = number[1][0] if number[1] else None
    return number == WORLD


def note_operation(m: Machine, op: type[ast.operator], left: Value, right: Value, node: ast.AST) -> None:
    """Note that a number is divided by the number of ranks."""
    form = _DIVIDES.get(op)
    if (
        form is not None
        and isinstance(node, ast.BinOp | ast.AugAssign)
        and is_world(m, right)
        and not is_world(m, left)
    ):
        _note(m, form, node, node.left if isinstance(node, ast.BinOp) else node.target, left, left)


def note_slice(m: Machine, base: Value, node: ast.AST, parts: list[Value]) -> None:
    """Note that a list is dealt out: `items[rank::world_size]`, or one run of items for each rank."""
    if not isinstance(node, ast.Subscript):
        return
    start, stop, step = parts
    if is_world(m, step):
        _note(m, "deal", node, node.value, _length(m, base), base, start)
    elif m.varies(start) & m.varies(stop) & RANKED and not (m.varies(start) | m.varies(stop)) & LOST:
        _note(m, "block", node, node.value, _length(m, base), base, start)


def note_range(m: Machine, ends: list[Value], node: ast.AST) -> None:
    """Note that numbers are dealt out: `range(rank, n, world_size)`."""
    if len(ends) == 3 and is_world(m, ends[2]) and isinstance(node, ast.Call) and len(node.args) == 3:
        _note(m, "range", node, node.args[1], ends[1], ends[1], ends[0])


def note_parts(m: Machine, given: Mapping[str, Value], receiver: Value | None, node: ast.AST) -> None:
    """Note that a list or tensor is cut into one part for each rank: `np.array_split(items, world_size)`."""
    if not isinstance(node, ast.Call) or not any(is_world(m, value) for value in given.values()):
        return
    if receiver is not None and isinstance(node.func, ast.Attribute):
        _note(m, "deal", node, node.func.value, _length(m, receiver), receiver)
    elif given and node.args:
        whole = next(iter(given.values()))
        _note(m, "deal", node, node.args[0], _length(m, whole), whole)


def _length(m: Machine, value: Value) -> Value:
    """Return how many items a list has; nothing where nobody knows."""
    from dslint.python import containers

    items = containers.exact_items(m, value)
    return const(len(items)) if items is not None else Value(frozenset())


def _note(
    m: Machine, form: str, node: ast.AST, whole: ast.expr, size: Value, held: Value, start: Value | None = None
) -> None:
    tags = frozenset((_TAGS.get(form, "shares"),))
    given = {"size": size, "start": start} if start is not None else {"size": size}
    event = Event(f"operator.{form}", tags, node, m.frame.module, None, given, None, m.lanes, m.control)
    event.nodes["whole"] = whole
    event.snapshot["whole"] = (m.deep_varies(held), m.shape(held), frozenset())
    place = m.origin(held)
    if place is not None:
        event.origins["whole"] = place
    m.events.append(event)
