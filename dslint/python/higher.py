"""Builtin functions that call a function of the program: `sorted`, `min`, `max`, `map`, `filter`, `reduce`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from dslint.python import containers, onceloops, orders, writing
from dslint.python.binding import Arguments
from dslint.python.heap import ITEMS, LENGTH
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.operators import apply
from dslint.python.values import NOTHING, OPAQUE, Const, Instance, PerRank, Tuple, Unknown, Value, one, unknown

# A function is called item by item for at most so many items; else any number of times for any of them.
_MAX_CALLS = 8
_NUMBERS = ("builtins.int", "builtins.float", "builtins.bool")


def each(m: Machine, function: Value, columns: list[Value], node: ast.AST) -> tuple[list[Value] | None, Value, int]:
    """Call a function for the items of iterables side by side.

    Return the results one by one where the number of items is known, what any of them may be, and the causes for which
    ranks may make a different number of calls.
    """
    from dslint.python.invoke import call_value
    from dslint.python.loops import items_of, repeat

    rows = _rows(m, columns)
    if rows is not None and len(rows) <= _MAX_CALLS:
        results, outer = [], m.frame.turn
        for at, row in enumerate(rows):
            onceloops.in_turn(m, m.frame, node, at, outer)
            if m.alive:
                results.append(call_value(m, function, Arguments(list(row)), node))
        m.frame.turn = outer
        return results, join_all(results), 0
    bits = 0
    for column in columns:
        bits |= containers.counted(m, column)
    found = [NOTHING]

    def turn() -> None:
        items = [
            join_all(row[at] for row in rows) if rows is not None else items_of(m, c, node)
            for at, c in enumerate(columns)
        ]
        result = call_value(m, function, Arguments(items), node)
        found[0] = join(found[0], result)

    repeat(m, node, turn, bits)
    return None, found[0], bits


def _rows(m: Machine, columns: list[Value]) -> list[tuple[Value, ...]] | None:
    known = [containers.exact_items(m, column) for column in columns]
    if not known or any(items is None for items in known):
        return None
    return list(zip(*[items for items in known if items is not None], strict=False))


def map_(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return `map(function, *columns)`."""
    if len(arguments.positional) < 2 or arguments.rest is not None:
        return None
    function, *columns = arguments.positional
    results, result, bits = each(m, function, columns, node)
    if results is not None:
        return containers.new_iterator(m, node, results)
    return containers.open_iterator(m, node, result, bits)


def filter_(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return `filter(function, column)`."""
    if len(arguments.positional) != 2:
        return None
    function, column = arguments.positional
    items = containers.exact_items(m, column)
    subject = one(Tuple(tuple(items))) if items is not None else column
    element = containers.element(m, subject, node) if items is not None else _element(m, subject, node)
    kept = element if function.constants == (None,) else each(m, function, [subject], node)[1]
    bits = containers.counted(m, column) | m.varies(kept)
    return containers.open_iterator(m, node, element.with_(bits), bits, m.origin(kept))


def _element(m: Machine, value: Value, node: ast.AST) -> Value:
    from dslint.python.loops import items_of

    return items_of(m, value, node)


def reduce_(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return `functools.reduce(function, column[, initial])`."""
    from dslint.python.invoke import call_value
    from dslint.python.loops import repeat

    if not 2 <= len(arguments.positional) <= 3:
        return None
    function, column, *start = arguments.positional
    items = containers.exact_items(m, column)
    if items is not None and len(items) <= _MAX_CALLS:
        found = start[0] if start else items.pop(0) if items else NOTHING
        for item in items:
            if m.alive:
                found = call_value(m, function, Arguments([found, item]), node)
        return found if found.atoms else unknown(OPAQUE, "`reduce` of nothing")
    element = join_all(items) if items is not None else _element(m, column, node)
    bits = m.varies(element) | containers.counted(m, column) | (m.varies(start[0]) if start else 0)
    so_far = unknown(OPAQUE, "reduced so far", bits)
    repeat(m, node, lambda: call_value(m, function, Arguments([so_far, element]), node), containers.counted(m, column))
    return so_far


def sorted_(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return `sorted(column, key=..., reverse=...)`: whatever the order was, it is this one now."""
    made = _sorted(m, arguments, node)
    for atom in made.atoms if made is not None else ():
        if isinstance(atom, Instance):
            orders.forget(m, atom)
    return made


def _sorted(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    if not arguments.positional:
        return None
    column = arguments.positional[0]
    key, reverse = arguments.keywords.get("key"), arguments.keywords.get("reverse")
    items = containers.exact_items(m, column)
    if items is not None:
        ordered = _ordered(m, items, reverse) if key is None or key.constants == (None,) else None
        if ordered is not None:
            return containers.new_list(m, node, ordered)
    subject = one(Tuple(tuple(items))) if items is not None else column
    element = join_all(items) if items is not None else _element(m, column, node)
    bits = m.varies(reverse) if reverse is not None else 0
    if key is not None and key.constants != (None,):
        bits |= m.varies(each(m, key, [subject], node)[1])
    if items is not None:
        inner = 0
        for item in items:
            inner |= m.varies(item)
        return containers.new_list(m, node, [element.with_(inner | bits)] * len(items))
    number = frozenset((Unknown(OPAQUE, "length", "builtins.int"),))
    length = Value(number, containers.counted(m, column), 0, frozenset(), None, m.origin(column))
    made = containers.new_list(m, node, [], element.with_(bits))
    m.store.set((made.single, LENGTH), length)
    return made


def _ordered(m: Machine, items: list[Value], reverse: Value | None) -> list[Value] | None:
    """Return items in order where all of them are constants."""
    if reverse is not None and reverse.constants not in ((True,), (False,)):
        return None
    if not items:
        return []
    backwards = reverse is not None and reverse.constants == (True,)
    firsts = _firsts(items)
    if firsts is not None:
        order = sorted(range(len(items)), key=firsts.__getitem__, reverse=backwards)
        return [items[at] for at in order]
    found = apply(m.worlds, lambda *values: tuple(sorted(values, reverse=backwards)), items)
    atom = found.single if found is not None else None
    if found is None or not isinstance(atom, Tuple):
        return None
    return [item.with_(found.varies) for item in atom.items]


def _firsts(items: list[Value]) -> list[str] | None:
    """Return the texts with which tuples begin, where all differ: nothing behind them takes part in the order."""
    firsts: list[str] = []
    for item in items:
        atom = item.single
        first = atom.items[0].single if isinstance(atom, Tuple) and atom.items else None
        if not isinstance(first, Const) or not isinstance(first.value, str):
            return None
        firsts.append(first.value)
    return firsts if len(set(firsts)) == len(firsts) else None


def sort_in_place(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> None:
    """Do `list.sort(key=..., reverse=...)`."""
    found = sorted_(m, Arguments([one(atom)], arguments.keywords), node)
    made = found.single if found is not None else None
    items = m.store.get((made, ITEMS)) if isinstance(made, Instance) else None
    if items is not None and items.atoms and containers.is_owned(m, atom):
        m.store.set((atom, ITEMS), items)
    else:
        writing.loosen(m, atom)
        for item in m.elements(made) if isinstance(made, Instance) else ():
            writing._add_rest(m, atom, item)
    orders.forget(m, atom)


def least(function: Callable[..., Any]) -> Callable[[Machine, Arguments, ast.AST], Value | None]:
    """Return the handler of `min`, `max` or `sum`."""

    def handler(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
        if arguments.rest is not None or arguments.open_keywords is not None or not arguments.positional:
            return None
        values = arguments.positional
        if function is sum:
            return _sum(m, values, arguments, node)
        items = containers.exact_items(m, values[0]) if len(values) == 1 else list(values)
        found = apply(m.worlds, function, items) if items and len(items) > 1 and not arguments.keywords else None
        if found is not None:
            return found
        return _one_of(m, values[0] if len(values) == 1 else None, items, arguments, node)

    return handler


def _one_of(m: Machine, subject: Value | None, items: list[Value] | None, arguments: Arguments, node: ast.AST) -> Value:
    """Return one of several values, nobody knows which."""
    if items is not None:
        subject = one(Tuple(tuple(items)))
    assert subject is not None
    bits = m.shape(subject)
    key = arguments.keywords.get("key")
    if key is not None and key.constants != (None,):
        bits |= m.varies(each(m, key, [subject], node)[1])
    element = join_all(items) if items is not None else _element(m, subject, node)
    default = arguments.keywords.get("default")
    if items is not None and len(items) == 1:
        return element
    if default is not None and not items:
        element = join(element, default)
    for item in items or ():
        bits |= m.varies(item)
    bits |= m.varies(element)
    if not element.atoms:
        return unknown(OPAQUE, "the least of nothing", bits)
    return Value(element.atoms, element.varies | bits, element.shape, element.made_by, None, m.origin(element))


def _sum(m: Machine, values: list[Value], arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.arithmetic import binary, scalar

    start = values[1] if len(values) > 1 else arguments.keywords.get("start", one(Const(0)))
    items = containers.exact_items(m, values[0])
    if items is not None and len(items) <= _MAX_CALLS:
        found = start
        for item in items:
            found = binary(m, ast.Add, found, item, node)
        return found
    element = join_all(items) if items is not None else _element(m, values[0], node)
    bits = m.shape(values[0]) | containers.taken(m, values[0], node)
    if all(isinstance(a, Const | PerRank) or (isinstance(a, Unknown) and a.type in _NUMBERS) for a in element.atoms):
        return scalar(m, (element, start), "builtins.float").with_(bits)
    binary(m, ast.Add, start, element, node)
    return m.thing(node, "sum", [element, start], varies=bits)
