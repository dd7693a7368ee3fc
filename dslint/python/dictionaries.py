"""Dictionaries: a cell for each constant key, and what other keys may hold."""

from __future__ import annotations

import ast

from dslint.python import containers, subscripts, writing
from dslint.python.binding import Arguments
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
                for key in item.atoms:
                    if isinstance(key, Const):
                        keys[key.value] = None
    return list(keys)


def _dict_item(m: Machine, atom: Instance, key: Value, node: ast.AST) -> Value:
    found = NOTHING
    for choice in key.atoms:
        if isinstance(choice, Const):
            stored = m.store.get((atom, ("key", choice.value)))
            rest = m.store.get((atom, REST))
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
    if UNKNOWN_LANE in values:
        return every.with_(m.worlds.varies(key.values, m.worlds.full))
    return Value(frozenset((PerRank(tuple(values)),)), varies)


def _note_key(m: Machine, atom: Instance, key: Const) -> None:
    keys = known_keys(m, atom)
    if key.value not in keys:
        m.store.set((atom, "#keys"), one(Tuple(tuple(const(k) for k in (*keys, key.value)))))


def update_dict(m: Machine, atom: Instance, value: Value, node: ast.AST) -> None:
    """Add all pairs of another dictionary to a dictionary."""
    for other in value.atoms:
        if isinstance(other, Instance) and other.cls == "builtins.dict":
            for key in known_keys(m, other):
                stored = m.store.get((other, ("key", key)))
                if stored is not None and stored.atoms:
                    sure = len(value.atoms) == 1 and not may_lack(m, other, key)
                    had = m.store.get((atom, ("key", key)))
                    writing._store_item(m, atom, const(key), stored, sure, node)
                    if not sure and (had is None or not had.atoms):
                        m.store.set((atom, ("maybe", key)), containers._TRUE)
            rest = m.store.get((other, REST))
            if rest is not None and rest.atoms:
                names = m.store.get((other, "#restkeys")) or unknown(OPAQUE, "key of a dictionary")
                add_unknown_key(m, atom, names, rest, m.shape(one(other)))
        else:
            _add_pairs(m, atom, one(other), node)


def _add_pairs(m: Machine, atom: Instance, pairs: Value, node: ast.AST) -> None:
    """Add what `dict(pairs)` reads: pairs of a key and a value, or another mapping."""
    from dslint.python.loops import items_of

    items = containers.exact_items(m, pairs)
    if items is not None:
        for pair in items:
            key, value = subscripts.unpacked(m, pair, 2, None, node)
            writing._store_item(m, atom, key, value, True, node)
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
    if containers.is_owned(m, atom):
        m.store.set((atom, ("key", key)), NOTHING)
        keys = [k for k in known_keys(m, atom) if k != key]
        m.store.set((atom, "#keys"), one(Tuple(tuple(const(k) for k in keys))))
    elif key in known_keys(m, atom):
        m.store.set((atom, ("maybe", key)), containers._TRUE)


def drop_some(m: Machine, atom: Instance) -> None:
    """Do `del d[key]` for a key that is not known: any may be gone."""
    for key in known_keys(m, atom):
        m.store.set((atom, ("maybe", key)), containers._TRUE)
    m.store.set((atom, LENGTH), writing._length(m, atom, 0))


def add_unknown_key(m: Machine, atom: Instance, key: Value, value: Value, counted_by: int = 0) -> None:
    """Add an item under a key that is not known for certain."""
    writing._add_rest(m, atom, value.with_(m.varies(key)))
    keys = m.store.get((atom, "#restkeys")) or NOTHING
    m.store.set((atom, "#restkeys"), join(keys, key))
    m.store.set((atom, LENGTH), writing._length(m, atom, m.varies(key) | counted_by))
