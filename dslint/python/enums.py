"""Enumerations and named tuples: classes whose bodies make objects, and objects that are tuples, too."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dslint.python import attributes
from dslint.python.binding import Arguments
from dslint.python.heap import CONTAINERS, LENGTH, Heap
from dslint.python.joins import join_all
from dslint.python.machine import Machine
from dslint.python.values import NOTHING, ClassAtom, Const, Instance, PerRank, Tuple, Unknown, Value, const, one

_ENUMS = frozenset({"enum.Enum", "enum.IntEnum", "enum.StrEnum", "enum.Flag", "enum.IntFlag"})
MEMBERS, FIELDS = "#members", "#fields"


def is_enum(m: Machine, cls: ClassAtom) -> bool:
    """Return whether a class is an enumeration."""
    return any(base in _ENUMS for base in attributes.lineage(m, cls))


def make_members(m: Machine, cls: ClassAtom) -> None:
    """Turn the plain values of an enumeration's body into its members."""
    members: list[Value] = []
    for statement in cls.node.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        name = statement.targets[0].id
        value = m.store.get((cls, name))
        if (
            name.startswith("_")
            or value is None
            or not all(isinstance(a, Const | PerRank | Tuple | Unknown | Instance) for a in value.atoms)
        ):
            continue
        members.append(_member(m, cls, name, value, statement, len(members) + 1))
    m.store.set((cls, MEMBERS), one(Tuple(tuple(members))))


def _member(m: Machine, cls: ClassAtom, name: str, value: Value, node: ast.stmt, number: int) -> Value:
    from dslint.python.invoke import call_method

    atom = m.instance(node, cls.frame, cls)
    if isinstance(value.single, Instance) and value.single.cls == "enum.auto":
        value = const(number)
    for key, stored in (("name", const(name)), ("_name_", const(name)), ("value", value), ("_value_", value)):
        m.store.set((atom, key), stored)
    made = one(atom)
    m.store.set((cls, name), made)
    inner = value.single
    call_method(
        m, made, "__init__", list(inner.items) if isinstance(inner, Tuple) and inner.is_tuple else [value], node
    )
    return made


def members_of(m: Machine, cls: ClassAtom) -> list[Value] | None:
    """Return the members of an enumeration in their order; `None` for any other class."""
    for base in attributes.lineage(m, cls):
        stored = m.store.get((base, MEMBERS)) if isinstance(base, ClassAtom) else None
        inner = stored.single if stored is not None else None
        if isinstance(inner, Tuple):
            return list(inner.items)
    return None


def looked_up(m: Machine, cls: ClassAtom, field: str, wanted: Value) -> Value | None:
    """Return `Color(wanted)` or `Color[wanted]`: the members whose field may be that; `None` for any other class."""
    members = members_of(m, cls)
    if members is None:
        return None
    kept = []
    for member in members:
        atom = member.single
        stored = m.store.get((atom, field)) if isinstance(atom, Instance) else None
        known = stored.constants if stored is not None else None
        if known is None or wanted.constants is None or set(map(repr, known)) & set(map(repr, wanted.constants)):
            kept.append(member)
    return join_all(kept or members).with_(m.varies(wanted))


def is_named_tuple(m: Machine, cls: ClassAtom) -> bool:
    """Return whether a class is a `typing.NamedTuple`."""
    return any(base in ("typing.NamedTuple", "collections.namedtuple") for base in attributes.lineage(m, cls))


def fill_named_tuple(m: Machine, cls: ClassAtom, atom: Instance, arguments: Arguments) -> None:
    """Set the fields of a new named tuple."""
    names = [s.target.id for s in cls.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    given = {**dict(zip(names, arguments.positional, strict=False)), **arguments.keywords}
    for name in names:
        value = given.get(name) or m.store.get((cls, name)) or arguments.rest or arguments.open_keywords
        if value is not None:
            m.store.set((atom, name), value)
    m.store.set((atom, FIELDS), one(Tuple(tuple(const(name) for name in names))))


def held_by(m: Heap, atom: Instance | Tuple) -> Sequence[Value]:
    """Return what a container, an iterator or a named tuple holds: it differs between ranks where one of these does."""
    if isinstance(atom, Tuple):
        return atom.items
    if isinstance(atom.cls, ClassAtom):
        return named_items(m, atom) or () if m.store.get((atom, FIELDS)) is not None else ()
    if atom.cls == "builtins.iterator":
        return (*m.elements(atom), m.store.get((atom, "#yields")) or NOTHING)
    if atom.cls in CONTAINERS:
        length = m.store.get((atom, LENGTH))
        return [*m.elements(atom), *([Value(frozenset(), length.varies)] if length is not None else ())]
    return ()


def named_items(m: Heap, atom: Instance) -> list[Value] | None:
    """Return the items of a named tuple in their order; `None` for any other object."""
    stored = m.store.get((atom, FIELDS))
    inner = stored.single if stored is not None else None
    if not isinstance(inner, Tuple):
        return None
    names = [item.single.value for item in inner.items if isinstance(item.single, Const)]
    return [m.store.get((atom, name)) or const(None) for name in names]
