"""Dictionaries: a cell for each constant key, and what other keys may hold."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.python import containers, subscripts, writing
from dslint.python.binding import Arguments
from dslint.python.escapes import is_escaped, lose
from dslint.python.heap import LENGTH, REST
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.values import (
    NOTHING,
    OPAQUE,
    UNKNOWN_LANE,
    Const,
    Instance,
    PerRank,
    Tuple,
    Value,
    Written,
    const,
    one,
    unknown,
)

# What a `defaultdict` calls for a key that it lacks.
FACTORY = "#factory"


def may_lack(m: Machine, atom: Instance, key: object) -> bool:
    """Return whether a known key of a dictionary may be absent after all: only some ways to this place stored it."""
    found = m.store.get((atom, ("maybe", key)))
    return found is not None and bool(found.atoms)


def known_keys(m: Machine, atom: Instance) -> list[object]:
    """Return the constant keys that a dictionary may have."""
    found = m.store.get((atom, "#keys"))
    keys: dict[object, None] = {}
    for choice in found.atoms if found is not None else ():
        if isinstance(choice, Tuple):
            for item in choice.items:
                keys.update(dict.fromkeys(_keys_at(item)))
        else:  # too many orders to keep them apart
            names = (name for name in tuple(m.store.names.get(atom, ())) if isinstance(name, tuple))
            keys.update((name[1], None) for name in names if name[0] == "key")
    return list(keys)


def _keys_at(item: Value) -> list[object]:
    """Return the keys that may stand at one place of an order: on each rank another one where ranks added them so."""
    found: list[object] = []
    for atom in item.atoms:
        values = atom.values if isinstance(atom, PerRank) else (atom.value,) if isinstance(atom, Const) else ()
        found += [value for value in values if value is not UNKNOWN_LANE]
    return found


def places_vary(m: Machine, atom: Instance) -> int:
    """Return the causes for which ranks may find another key at the same place: others are there, or another order."""
    order = m.store.get((atom, "#keys"))
    return m.shape(one(atom)) | (m.varies(order) if order is not None else 0)


def is_ordered(m: Machine, atom: Instance) -> bool:
    """Return whether the constant keys of a dictionary have one order that is known."""
    order = m.store.get((atom, "#keys"))
    choice = order.single if order is not None else Tuple(())
    return isinstance(choice, Tuple) and all(isinstance(item.single, Const) for item in choice.items)


def _dict_item(m: Machine, atom: Instance, key: Value, node: ast.AST) -> Value:
    found = NOTHING
    for choice in key.atoms:
        if isinstance(choice, Const):
            stored = m.store.get((atom, ("key", choice.value)))
            rest = m.store.get((atom, REST))
            if m.keeps_configs and stored is not None and stored.atoms and not may_lack(m, atom, choice.value):
                rest = None  # what other keys were given since may be in it already
            found = join(found, join_all(v for v in (stored, rest) if v is not None))
        elif isinstance(choice, PerRank):
            found = join(found, _dict_by_lane(m, atom, choice))
        else:
            every = [m.store.get((atom, ("key", k))) for k in known_keys(m, atom)]
            every.append(m.store.get((atom, REST)))
            found = join(found, join_all(v for v in every if v is not None).with_(m.varies(key)))
    if found.atoms:
        return found
    return m.thing(node, "item of a dictionary", (one(atom), key))


def item_of(m: Machine, atom: Instance, key: Value, node: ast.AST) -> Value:
    """Return `d[key]`; a `defaultdict` makes what it lacks, and keeps it."""
    from dslint.python.invoke import call_value

    factory = m.store.get((atom, FACTORY))
    if factory is None or factory.constants == (None,):
        return _dict_item(m, atom, key, node)
    names = [choice.value for choice in key.atoms if isinstance(choice, Const)]
    known = known_keys(m, atom)
    if len(names) == len(key.atoms) and all(name in known and not may_lack(m, atom, name) for name in names):
        return _dict_item(m, atom, key, node)
    default = call_value(m, factory, Arguments(), node)
    stored = m.store.get((atom, ("key", names[0]))) if len(names) == 1 else None
    if len(key.atoms) == 1 and names:
        value = default if stored is None or not stored.atoms else join(stored, default)
        writing.store_item(m, one(atom), key, value, node)
        return _dict_item(m, atom, key, node)
    add_unknown_key(m, atom, key, default)
    return _dict_item(m, atom, key, node)


def _dict_by_lane(m: Machine, atom: Instance, key: PerRank) -> Value:
    values: list[object] = []
    for name in key.values:
        stored = m.store.get((atom, ("key", name)))
        single = stored.single if stored is not None else None
        values.append(single.value if isinstance(single, Const) else UNKNOWN_LANE)
    varies = m.worlds.varies(tuple(values), m.worlds.full) if UNKNOWN_LANE not in values else 0
    every = join_all(v for v in (m.store.get((atom, ("key", k))) for k in known_keys(m, atom)) if v is not None)
    rest = m.store.get((atom, REST))
    if UNKNOWN_LANE in values or (rest is not None and rest.atoms):
        return join(every, rest or NOTHING).with_(m.worlds.varies(key.values, m.worlds.full))
    return Value(frozenset((PerRank(tuple(values)),)), varies)


def note_item(m: Machine, atom: Instance, key: Const, place: Value, sure: bool, *, is_new: bool) -> None:
    """Keep that a key was set, and where; when `sure` it is there for certain."""
    if sure and may_lack(m, atom, key.value):
        m.store.set((atom, ("maybe", key.value)), NOTHING)
    elif not sure and is_new and m.keeps_configs:
        m.store.set((atom, ("maybe", key.value)), containers._TRUE)
    old = m.store.get((atom, ("at", key.value)))
    m.store.set((atom, ("at", key.value)), place if sure or is_new or old is None else join(old, place))
    _note_key(m, atom, key)


def place_of(m: Machine, atom: Instance, key: object, node: ast.AST) -> Value:
    """Return where an item was written; `node` where nobody knows."""
    return m.store.get((atom, ("at", key))) or one(Written(node, node))


def place_of_keyword(arguments: Arguments, name: str, node: ast.AST) -> Value:
    """Return where a keyword argument of the call at `node` is written, also where a dictionary is unpacked."""
    known = arguments.places.get(name)
    if known is not None:
        return known
    at = arguments.nodes.get(name, node)
    keywords = node.keywords if isinstance(node, ast.Call | ast.ClassDef) else []
    key = next((k for k in keywords if k.arg == name and k.value is at), None)
    return one(Written(key if key is not None else at, at))


def _note_key(m: Machine, atom: Instance, key: Const) -> None:
    _set_orders(
        m, atom, lambda keys: keys if any(key.value in _keys_at(k) for k in keys) else (*keys, const(key.value))
    )


def _set_orders(m: Machine, atom: Instance, change: Callable[[tuple[Value, ...]], tuple[Value, ...]]) -> None:
    """Change each order that the constant keys of a dictionary may have."""
    old = m.store.get((atom, "#keys"))
    choices = old.atoms if old is not None and old.atoms else frozenset((Tuple(()),))
    atoms = frozenset(Tuple(change(choice.items)) if isinstance(choice, Tuple) else choice for choice in choices)
    if atoms != choices or old is None:
        m.store.set((atom, "#keys"), Value(atoms, old.varies if old is not None and len(atoms) > 1 else 0))


def made_of(m: Machine, node: ast.AST, parts: list[tuple[Value | None, Value, Value]]) -> Value:
    """Return a new dictionary of keys, values and places in turn; without a key, of all pairs of the value."""
    made = m.made(node, "builtins.dict")
    atom = made.single
    assert isinstance(atom, Instance)
    # The turn of a loop before this one has made it, and this one takes it over: `d = {**d, "a": 1}`.
    again = [at for at, (key, value, _) in enumerate(parts) if key is None and atom in value.atoms]
    if not again:
        containers.clear(m, atom)
    for at, (key, value, place) in enumerate(parts):
        if at in again:
            _take_over(m, atom, value, node)
        elif key is None:
            update_dict(m, atom, value, node)
        elif not place.atoms:
            add_unknown_key(m, atom, key, value)
        else:
            writing._store_item(m, atom, key, value, all(at > before for before in again), node, place)
    return made


def _take_over(m: Machine, atom: Instance, value: Value, node: ast.AST) -> None:
    """Keep in a dictionary what it held in the turn before, or what others hold that may stand in its place."""
    others = [other for other in value.atoms if other != atom]
    for key in known_keys(m, atom):
        if any(not isinstance(other, Instance) or key not in known_keys(m, other) for other in others):
            m.store.set((atom, ("maybe", key)), containers._TRUE)
    if others:
        update_dict(m, atom, value, node)


def update_dict(m: Machine, atom: Instance, value: Value, node: ast.AST) -> None:
    """Add all pairs of another dictionary to a dictionary."""
    bits = value.varies if len(value.atoms) > 1 else 0
    counted = bits | m.shape(value)
    if counted:
        m.store.set((atom, LENGTH), writing._length(m, atom, counted))
    for other in value.atoms:
        if isinstance(other, Instance) and other.cls == "builtins.dict":
            rest = m.store.get((other, REST))
            if rest is not None and rest.atoms:
                names = m.store.get((other, "#restkeys")) or unknown(OPAQUE, "key of a dictionary")
                add_unknown_key(m, atom, names, rest.with_(bits), m.shape(one(other)))
            for key in known_keys(m, other):
                stored = m.store.get((other, ("key", key)))
                if stored is not None and stored.atoms:
                    stored = stored.with_(bits)
                    sure = len(value.atoms) == 1 and not may_lack(m, other, key)
                    had = m.store.get((atom, ("key", key)))
                    writing._store_item(m, atom, const(key), stored, sure, node, place_of(m, other, key, node))
                    if not sure and (had is None or not had.atoms):
                        m.store.set((atom, ("maybe", key)), containers._TRUE)
        else:
            _add_pairs(m, atom, one(other), node)


def _add_pairs(m: Machine, atom: Instance, pairs: Value, node: ast.AST) -> None:
    """Add what `dict(pairs)` reads: pairs of a key and a value, or another mapping."""
    from dslint.python.loops import items_of

    items = containers.exact_items(m, pairs)
    if items is not None:
        for pair in items:
            key, value = subscripts.unpacked(m, pair, 2, None, node)
            writing._store_item(m, atom, key, value, True, node, one(Written(node, node)))
        return
    is_sequence = isinstance(pairs.single, Instance) and pairs.single.cls in (
        *containers.LISTS,
        "builtins.iterator",
        "builtins.generator",
    )
    pair = items_of(m, pairs, node) if is_sequence else NOTHING
    if pair.atoms and all(isinstance(a, Tuple) for a in pair.atoms):
        key, value = subscripts.unpacked(m, pair, 2, None, node)
    elif is_sequence and not pair.atoms:
        return
    else:
        value = m.thing(node, "items of an unknown mapping", (pairs,))
        key = unknown(OPAQUE, "key of an unknown mapping", m.varies(value))
    add_unknown_key(m, atom, key, value, containers.counted(m, pairs))


def drop_key(m: Machine, atom: Instance, key: object) -> None:
    """Do `del d[key]` for a constant key."""
    if containers.is_owned(m, atom) and not (m.keeps_configs and is_escaped(m, atom)):
        m.store.set((atom, ("key", key)), NOTHING)
        _set_orders(m, atom, lambda keys: tuple(k for k in keys if k.constants != (key,)))
    elif key in known_keys(m, atom):
        m.store.set((atom, ("maybe", key)), containers._TRUE)


def drop_some(m: Machine, atom: Instance, varies: int = 0) -> None:
    """Do `del d[key]` for a key that is not known, or not the same on all ranks: any may be gone."""
    for key in known_keys(m, atom):
        m.store.set((atom, ("maybe", key)), containers._TRUE)
    m.store.set((atom, LENGTH), writing._length(m, atom, varies))


def add_unknown_key(
    m: Machine, atom: Instance, key: Value, value: Value, counted_by: int = 0, place: Value | None = None
) -> None:
    """Add an item under a key that is not known for certain."""
    if m.keeps_configs and _one_of_several(m, atom, key, value, place):
        return
    writing._add_rest(m, atom, value.with_(m.varies(key)))
    keys = m.store.get((atom, "#restkeys")) or NOTHING
    m.store.set((atom, "#restkeys"), join(keys, key))
    m.store.set((atom, LENGTH), writing._length(m, atom, m.varies(key) | counted_by))


def _one_of_several(m: Machine, atom: Instance, key: Value, value: Value, place: Value | None) -> bool:
    """Let each item that the key may mean be the old or the new one; return whether these are all keys it may mean."""
    names = key.constants
    known = known_keys(m, atom)
    for name in sorted(names, key=repr) if names is not None and place is not None else ():
        if name not in known and place is not None:
            m.store.set((atom, ("key", name)), NOTHING)
            note_item(m, atom, Const(name), place, False, is_new=True)
    for name in known_keys(m, atom):
        held = m.store.get((atom, ("key", name)))
        if held is not None and (held.atoms or name not in known) and (names is None or name in names):
            m.store.set((atom, ("key", name)), join(held, value.with_(m.varies(key))))
    return names is not None and place is not None


def updated_in_place(m: Machine, old: Value, value: Value, node: ast.AST) -> bool:
    """Do `old |= value` for one of several dictionaries; return whether it is none but them."""
    from dslint.python.invoke import call_member

    atoms = [atom for atom in old.atoms if isinstance(atom, Instance) and atom.cls == "builtins.dict"]
    others = [atom for atom in old.atoms if atom not in atoms and not isinstance(atom, Const | PerRank)]
    if atoms and not others:  # no constant takes a dictionary
        dicts = Value(frozenset(atoms), old.varies, old.shape, old.made_by, old.number, old.origin)
        call_member(m, dicts, "update", Arguments([value]), node)
        return True
    if atoms and m.keeps_configs:
        lose(m, old)
    return False


def views_combined(op: type[ast.operator], left: Value, right: Value) -> Value | None:
    """Return `a.keys() & b.keys()` of two dictionaries whose keys are known, in the order of `a`."""
    pair = (left.single, right.single)
    first, second = (
        list(atom.items) if isinstance(atom, Tuple) and atom.cls == "builtins.dict_keys" else None for atom in pair
    )
    if first is None or second is None or not all(isinstance(key.single, Const) for key in (*first, *second)):
        return None
    common = [key for key in first if key in second]
    found = {
        ast.BitAnd: common,
        ast.BitOr: [*first, *(key for key in second if key not in first)],
        ast.Sub: [key for key in first if key not in second],
    }.get(op)
    return one(Tuple(tuple(found), "builtins.dict_keys")) if found is not None else None


def merged(m: Machine, op: type[ast.operator], left: Value, right: Value, node: ast.AST) -> Value | None:
    """Return `first | second` of two dictionaries."""
    from dslint.python.wrappers import copied

    pair = (left.single, right.single)
    if op is not ast.BitOr or not all(isinstance(atom, Instance) and atom.cls == "builtins.dict" for atom in pair):
        return None
    made = copied(m, left, node)
    if isinstance(made.single, Instance):
        update_dict(m, made.single, right, node)
    return made
