"""What a collective makes the same on all ranks: tensors in place, lists of objects by new objects."""

from __future__ import annotations

import ast

from dslint.python import dictionaries, ragged, wrappers
from dslint.python.binding import BoundArguments
from dslint.python.heap import CONTENT, LENGTH, RECEIVED, REST, UNWRITTEN
from dslint.python.joins import join_all
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.values import NOTHING, OPAQUE, Atom, Instance, Tuple, Unknown, Value, one
from dslint.python.varies import DIVERGENT, GROUPED, LOST


def make_same(m: Machine, value: Value, node: ast.expr | None, row: Row, bound: BoundArguments, call: ast.AST) -> None:
    """Forget how a value differed: all ranks of the group hold the same now."""
    group = bound.given.get(row.extra.get("group", "group"))
    keeps = GROUPED if group is not None and group.constants != (None,) else 0
    if row.makes_same_on:
        return
    if "broadcast" in row.path and m.lanes == m.worlds.full and not m.varies(value) & (DIVERGENT | LOST):
        return  # all ranks held this before
    touched = agree(m, value, keeps, 0, call)
    from dslint.python.statements import assign

    if not touched and isinstance(node, ast.Name):
        assign(m, node, Value(frozenset((Unknown(OPAQUE, RECEIVED),)), keeps))
    elif touched and isinstance(node, ast.Name | ast.Attribute) and value.varies & (DIVERGENT | LOST):
        # Which object it is differs between the ranks; what is in it is the same now.
        assign(m, node, Value(value.atoms, keeps, 0, value.made_by))


def agree(m: Machine, value: Value, keeps: int, depth: int, call: ast.AST) -> bool:
    """Forget how the objects of a value differ, what they hold included; returns whether there is one."""
    found = False
    for atom in value.atoms:
        if isinstance(atom, Instance):
            found = True
            _same_object(m, atom, keeps)
            if atom.cls in ("builtins.list", "builtins.dict") and depth < 2:
                _same_items(m, atom, keeps, depth, call)
        elif isinstance(atom, Tuple) and depth < 2:
            for item in atom.items:
                found = agree(m, item, keeps, depth + 1, call) or found
    return found


def _same_object(m: Machine, atom: Instance, keeps: int) -> None:
    ragged.made_same(m, atom)
    for name in (CONTENT, UNWRITTEN):
        content = m.store.get((atom, name))
        if content is not None:
            kinds = frozenset((Unknown(OPAQUE, RECEIVED, str(atom.cls)),))
            m.store.set((atom, name), Value(kinds, keeps, 0, content.made_by))
    length = m.store.get((atom, LENGTH))
    if length is not None and length.varies:
        # One that differs ends no broadcast: the sizes of the items are sent first, in a tensor of that length.
        m.store.set((atom, LENGTH), Value(frozenset((Unknown(OPAQUE, RECEIVED, "builtins.int"),)), keeps))
    if atom.cls not in ("builtins.list", "builtins.dict"):
        for key in dictionaries.known_keys(m, atom):
            m.store.set((atom, ("key", key)), NOTHING)


def _same_items(m: Machine, atom: Instance, keeps: int, depth: int, call: ast.AST) -> None:
    held = m.store.get((atom, "#items"))
    choices = [choice.items for choice in held.atoms if isinstance(choice, Tuple)] if held is not None else []
    if choices and len({len(items) for items in choices}) == 1:
        fresh = []
        for item in (join_all(column) for column in zip(*choices, strict=True)):
            objects = frozenset(_sent(m, a, keeps, depth, call) for a in item.atoms if isinstance(a, Instance))
            received = frozenset((Unknown(OPAQUE, RECEIVED),))
            atoms = objects if objects and len(objects) == len(item.atoms) else objects | received
            fresh.append(Value(atoms, keeps, 0, item.made_by))
        m.store.set((atom, "#items"), one(Tuple(tuple(fresh))))
        return
    rest = m.store.get((atom, "#rest"))
    if rest is not None:
        inner: frozenset[Atom] = frozenset(
            _sent(m, a, keeps, depth, call) for a in rest.atoms if isinstance(a, Instance)
        )
        m.store.set((atom, "#rest"), Value(inner or frozenset((Unknown(OPAQUE, RECEIVED),)), keeps))


def _sent(m: Machine, atom: Instance, keeps: int, depth: int, call: ast.AST) -> Instance:
    """Return what takes the place of an object in a list that is sent: of a dictionary, the ranks get a new one."""
    if atom.cls != "builtins.dict":
        agree(m, one(atom), keeps, depth + 1, call)
        return atom
    received = Value(frozenset((Unknown(OPAQUE, RECEIVED),)), keeps)
    if dictionaries.places_vary(m, atom):  # which keys it has, the sender knows
        new = m.instance(call, m.context((m.frame.turn or m.frame.id, "sent", atom)), atom.cls, atom.loop)
        m.store.set((new, REST), received)
        return new
    made = wrappers.copied_object(m, atom, call, is_one_of_several=True).single
    assert isinstance(made, Instance)
    for name in (*(("key", key) for key in dictionaries.known_keys(m, made)), REST):
        held = m.store.get((made, name))
        if held is not None and held.atoms and m.deep_varies(held) & (DIVERGENT | LOST):
            m.store.set((made, name), received)
    return made
