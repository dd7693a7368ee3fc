"""Writes into lists, sets and parts of objects: items, slices, growth, and what is forgotten."""

from __future__ import annotations

import ast

from dslint.python import containers, dictionaries
from dslint.python.escapes import CHANGED, is_escaped, lose
from dslint.python.heap import CONTENT, ITEMS, LENGTH, REST, UNWRITTEN
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.values import (
    NOTHING,
    OPAQUE,
    TRUE,
    Api,
    Const,
    Instance,
    Tuple,
    Unknown,
    Value,
    Written,
    const,
    one,
    unknown,
)


def store_item(
    m: Machine, base: Value, key: Value, value: Value, node: ast.AST, place: ast.AST | Value | None = None
) -> None:
    """Do `base[key] = value`; `place` is the expression of the value, or where the item is written."""
    if not isinstance(place, Value):
        at = place if place is not None else node
        place = one(Written(node.slice if isinstance(node, ast.Subscript) else node, at))
    for atom in base.atoms:
        if isinstance(atom, Instance):
            if atom.cls == "os._Environ":
                from dslint.python.environment import set_variable

                set_variable(m, key, value, node)
                continue
            _store_item(m, atom, key, value, len(base.atoms) == 1, node, place)
        elif isinstance(atom, Api):
            from dslint.python.environment import is_environment, set_variable

            if is_environment(atom):
                set_variable(m, key, value, node)


def store_slice(m: Machine, base: Value, items: Value, varies: int, node: ast.AST) -> None:
    """Do `base[i:j] = items`: a list may grow or shrink, and nobody knows where."""
    for atom in base.atoms:
        if isinstance(atom, Instance) and atom.cls in containers.LISTS:
            moved(m, atom, varies)
            _add_rest(m, atom, items.with_(varies))
            m.store.set((atom, LENGTH), _length(m, atom, varies))
        else:
            store_item(m, one(atom), unknown(OPAQUE, "slice", varies), items, node)


def _store_item(
    m: Machine, atom: Instance, key: Value, value: Value, is_sure: bool, node: ast.AST, place: Value
) -> None:
    from dslint.python.invoke import call_method

    sure = is_sure and containers.is_owned(m, atom)
    if not isinstance(atom.cls, str):
        call_method(m, one(atom), "__setitem__", [key, value], node)
        return
    single = key.single
    if atom.cls in containers.LISTS:
        _store_position(m, atom, key, value, sure)
        return
    is_tensor = atom.cls in ("torch.Tensor", "numpy.ndarray")
    if not is_tensor and isinstance(single, Const) and is_hashable(single.value):
        if atom.cls == "":
            _mix(m, atom, value, key, is_name=isinstance(single.value, str))
        cell = (atom, ("key", single.value))
        old = m.store.get(cell)
        if m.keeps_configs and is_escaped(m, atom):
            lose(m, value)
            value, sure = join(value, CHANGED), False
        m.store.set(cell, value if sure or old is None else join(old, value))
        dictionaries.note_item(m, atom, single, place, sure, is_new=old is None or not old.atoms)
        return
    if atom.cls == "builtins.dict":
        dictionaries.add_unknown_key(m, atom, key, value, place=place)
        return
    _mix(m, atom, value, key)


def _mix(m: Machine, atom: Instance, value: Value, key: Value, *, is_name: bool = False) -> None:
    """Write into a part of an object that is read as a whole, too; under a name, the other names keep what they had."""
    content = m.content(atom)
    if content is None:
        return
    m.store.set((atom, CONTENT), _mixed(m, content, value, key))
    others = m.store.get((atom, UNWRITTEN))
    if is_name:
        m.store.set((atom, UNWRITTEN), others or content)
    elif others is not None:
        m.store.set((atom, UNWRITTEN), _mixed(m, others, value, key))


def _mixed(m: Machine, content: Value, value: Value, key: Value) -> Value:
    return Value(
        frozenset((Unknown(OPAQUE, "written item by item"),)),
        content.varies | m.varies(value) | m.varies(key),
        content.shape,
        content.made_by | m.made_by(value),
        None,
        content.origin or m.origin(value),
    )


def is_hashable(value: object) -> bool:
    """Return whether a constant can be a key."""
    return isinstance(value, str | int | float | bool | bytes | type(None))


def _store_position(m: Machine, atom: Instance, key: Value, value: Value, sure: bool) -> None:
    note_change(m, atom)
    items = containers.exact_items(m, one(atom))
    single = key.single
    if items is None or not isinstance(single, Const) or not isinstance(single.value, int):
        if items is not None:
            bits = m.varies(key)
            joined = [join(item, value, bits) for item in items]
            m.store.set((atom, ITEMS), one(Tuple(tuple(joined))))
        else:
            _add_rest(m, atom, value.with_(m.varies(key)))
        return
    at = single.value
    if -len(items) <= at < len(items):
        items[at] = value if sure else join(items[at], value)
        m.store.set((atom, ITEMS), one(Tuple(tuple(items))))


def note_change(m: Machine, atom: Instance) -> None:
    """Note that a program changes `sys.argv`, or a part of it, in place."""
    part = m.store.get((atom, "#argv"))
    if part is None or not part.atoms:
        return
    m.store.set((atom, "#argv"), const(-1))
    if part.constants == (0,):
        m.store.set((Api("sys.argv"), "#changed"), TRUE)


def _add_rest(m: Machine, atom: Instance, value: Value) -> None:
    rest = m.store.get((atom, REST))
    m.store.set((atom, REST), value if rest is None else join(rest, value))


def _add_last(m: Machine, atom: Instance, value: Value) -> None:
    """Add items at the end, which is another place on ranks that have another number of items."""
    length = m.store.get((atom, LENGTH))
    _add_rest(m, atom, value)
    rest = m.store.get((atom, REST))
    if length is not None and length.varies and rest is not None and len(rest.atoms) > 1:
        m.store.set((atom, REST), rest.with_(length.varies))


def append(m: Machine, atom: Instance, value: Value, node: ast.AST) -> None:
    """Add one element to a list or set."""
    note_change(m, atom)
    if atom.cls in containers.LISTS:
        items = containers.exact_items(m, one(atom))
        if items is not None and len(items) < containers._MAX_ITEMS and containers.is_owned(m, atom):
            m.store.set((atom, ITEMS), one(Tuple((*items, value))))
            return
        loosen(m, atom)
    _add_last(m, atom, value)
    m.store.set((atom, LENGTH), _length(m, atom, 0))


def extend(m: Machine, atom: Instance, value: Value, node: ast.AST) -> None:
    """Add all elements of an iterable to a list or set."""
    note_change(m, atom)
    more = containers.exact_items(m, value)
    items = containers.exact_items(m, one(atom)) if atom.cls in containers.LISTS else None
    if (
        more is not None
        and items is not None
        and len(items) + len(more) <= containers._MAX_ITEMS
        and containers.is_owned(m, atom)
    ):
        m.store.set((atom, ITEMS), one(Tuple((*items, *more))))
        return
    loosen(m, atom)
    _add_last(m, atom, containers.iterated(m, value, node))
    m.store.set((atom, LENGTH), _length(m, atom, containers.counted(m, value)))


def augmented(m: Machine, old: Value, op: type[ast.operator], value: Value, node: ast.AST) -> bool:
    """Do `items += value`, `items |= value` or `items *= value` in place; return whether it is a list or a set."""
    atom = old.single
    if op in (ast.Add, ast.BitOr):
        if not isinstance(atom, Instance) or atom.cls not in (*containers.LISTS, "builtins.set"):
            return extend_one_of(m, old, value, node)
        extend(m, atom, value, node)
        return True
    lists = [each for each in old.atoms if isinstance(each, Instance) and each.cls in containers.LISTS]
    if op is not ast.Mult or len(lists) < len(old.atoms):
        return False
    for each in lists:
        _repeat(m, each, value, 0 if len(lists) == 1 else old.varies, is_sure=len(lists) == 1)
    return bool(lists)


def _repeat(m: Machine, atom: Instance, number: Value, varies: int, *, is_sure: bool) -> None:
    items, single = containers.exact_items(m, one(atom)), number.single
    times = max(single.value, 0) if isinstance(single, Const) and isinstance(single.value, int) else None
    is_known = is_sure and items is not None and times is not None and containers.is_owned(m, atom)
    if is_known and items is not None and times is not None and len(items) * times <= containers._MAX_ITEMS:
        note_change(m, atom)
        m.store.set((atom, ITEMS), one(Tuple(tuple(items * times))))
        return
    moved(m, atom)
    m.store.set((atom, LENGTH), _length(m, atom, m.varies(number) | varies))


def extend_one_of(m: Machine, base: Value, value: Value, node: ast.AST) -> bool:
    """Add all elements of an iterable to one of several lists in place; return whether they are lists."""
    lists = [a for a in base.atoms if isinstance(a, Instance) and a.cls in ("builtins.list", "builtins.set")]
    if len(lists) < 2 or len(lists) < len(base.atoms):
        return False
    items = containers.iterated(m, value, node)
    for atom in lists:
        loosen(m, atom)
        _add_rest(m, atom, items)
        m.store.set((atom, LENGTH), _length(m, atom, m.varies(base) | containers.counted(m, value)))
    return True


def _length(m: Machine, atom: Instance, varies: int) -> Value:
    old = m.store.get((atom, LENGTH))
    return unknown(OPAQUE, "length", varies | (old.varies if old is not None else 0), 0, "builtins.int")


def loosen(m: Machine, atom: Instance) -> None:
    """Forget the order and the number of the items of a list."""
    note_change(m, atom)
    items = m.store.get((atom, ITEMS))
    if items is None or not items.atoms:
        return
    found = join_all(item for choice in items.atoms if isinstance(choice, Tuple) for item in choice.items)
    m.store.set((atom, ITEMS), NOTHING)
    _add_rest(m, atom, found)
    m.store.set((atom, LENGTH), _length(m, atom, items.varies | items.shape))


def moved(m: Machine, atom: Instance, varies: int = 0) -> None:
    """Note that the items of a list stand at other places than before, which differ between ranks by `varies`."""
    if containers.exact_items(m, one(atom)) == []:
        return  # forgotten, it would be taken for what ranks have that come another way
    loosen(m, atom)
    rest = m.store.get((atom, REST))
    if rest is not None and rest.atoms:
        # A write, also where it holds what it held: ranks that come another way have them where they were.
        written = Value(rest.atoms, rest.varies | varies, rest.shape, rest.made_by, None, rest.origin)
        m.store.set((atom, REST), written)


def remove_at(m: Machine, atom: Instance, key: Value, *, is_part: bool) -> None:
    """Do `del items[key]`; `is_part` for a slice."""
    if atom.cls not in (*containers.LISTS, "builtins.set"):
        loosen(m, atom)
        return
    items, single = containers.exact_items(m, one(atom)), key.single
    at = single.value if isinstance(single, Const) and isinstance(single.value, int) else None
    if items is not None and at is not None and -len(items) <= at < len(items) and containers.is_owned(m, atom):
        del items[at]
        m.store.set((atom, ITEMS), one(Tuple(tuple(items))))
        return
    if items == []:
        return
    bits = m.varies(key)
    moved(m, atom, bits)
    m.store.set((atom, LENGTH), _length(m, atom, bits if is_part else 0))


def insert(m: Machine, atom: Instance, key: Value, value: Value, node: ast.AST) -> None:
    """Do `items.insert(key, value)`."""
    items, single = containers.exact_items(m, one(atom)), key.single
    at = single.value if isinstance(single, Const) and isinstance(single.value, int) else None
    if items is not None and at is not None and len(items) < containers._MAX_ITEMS and containers.is_owned(m, atom):
        items.insert(at, value)
        note_change(m, atom)
        m.store.set((atom, ITEMS), one(Tuple(tuple(items))))
        return
    loosen(m, atom)
    append(m, atom, value, node)
    moved(m, atom, m.varies(key))


def loosened(items: Value) -> Value:
    """Return the join of all items of the tuples in an `ITEMS` cell."""
    return join_all(item for choice in items.atoms if isinstance(choice, Tuple) for item in choice.items)
