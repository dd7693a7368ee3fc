"""What code without a model gets hold of: it may keep it, and change it at any time."""

from __future__ import annotations

import ast

from dslint.python.changes import changed_in, changes_something, fields_in, outer_names
from dslint.python.heap import CONTAINERS, ESCAPED, REST
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.store import Key
from dslint.python.values import (
    OPAQUE,
    TRUE,
    Atom,
    Bound,
    ClassAtom,
    Function,
    Instance,
    Partial,
    Tuple,
    Unknown,
    Value,
    const,
)

# The item of a dictionary or list that other code may have changed.
CHANGED = Value(frozenset((Unknown(OPAQUE, "other code may change it"),)))
# After so many objects all dictionaries count as reached.
_MOST_OBJECTS = 300


def escape(m: Machine, value: Value, depth: int = 0) -> None:
    """Remember that code without a model may keep and change an object."""
    if m.keeps_configs and depth == 0:
        lose(m, value)
    for atom in value.atoms:
        if isinstance(atom, Instance):
            m.store.set((atom, ESCAPED), const(True))
            m.escaped.add(atom)
            if depth < 2 and atom.cls in CONTAINERS:
                for item in m.elements(atom):
                    escape(m, item, depth + 1)
        elif isinstance(atom, Tuple) and depth < 2:
            for item in atom.items:
                escape(m, item, depth + 1)


def is_escaped(m: Machine, atom: Instance) -> bool:
    """Return whether code without a model has got hold of an object."""
    found = m.store.get((atom, ESCAPED))
    return found is not None and bool(found.atoms)


def lose(m: Machine, value: Value) -> None:
    """Let the items of all dictionaries and lists that a value leads to be unknown from now on."""
    pending, seen = list(value.atoms), set[Atom]()
    while pending:
        atom = pending.pop()
        if atom in seen:
            continue
        seen.add(atom)
        if len(seen) > _MOST_OBJECTS:
            lose_all(m)
            return
        for inner in _inside(m, atom):
            pending += inner.atoms
        if isinstance(atom, Instance) and atom.cls in CONTAINERS:
            _spoil(m, atom)


def lose_names(m: Machine) -> None:
    """Let the dictionaries be unknown that functions of this module may change: somebody may have called them."""
    lose_named(m, m.frame.module_frame, changed_in(m.frame.module.tree))


def lose_named(m: Machine, frame: int, names: frozenset[str]) -> None:
    """Do so with what names of a frame hold."""
    for name in names:
        held = m.store.get((frame, name))
        if held is not None:
            lose(m, Value(frozenset(a for a in held.atoms if not isinstance(a, Function))))


def lose_fields(m: Machine, made: Value, methods: list[ast.stmt]) -> None:
    """Let the dictionaries in those fields of an object be unknown that some methods may change."""
    changing = [n for n in methods if isinstance(n, ast.FunctionDef) and n.name != "__init__" and changes_something(n)]
    for name in {name for method in changing for name in fields_in(method)}:
        for atom in made.atoms:
            held = m.store.get((atom, name))
            if held is not None:
                lose(m, held)


def lose_all(m: Machine) -> None:
    """Let the items of every dictionary and list be unknown."""
    for owner in list(m.store.names):
        if isinstance(owner, Instance) and owner.cls in CONTAINERS:
            _spoil(m, owner)


def lose_written(m: Machine, keys: list[Key]) -> None:
    """Do so with those of which some cells were written."""
    for owner in dict.fromkeys(owner for owner, _ in keys):
        if isinstance(owner, Instance) and owner.cls in CONTAINERS:
            lose(m, Value(frozenset((owner,))))


def _inside(m: Machine, atom: Atom) -> list[Value]:
    """Return what an object leads to, and what a function may change when somebody calls it."""
    if isinstance(atom, Tuple):
        return list(atom.items)
    if isinstance(atom, Bound):
        return [Value(frozenset((atom.receiver,)))]
    if isinstance(atom, Partial):
        return [atom.function, *atom.arguments, *(value for _, value in atom.keywords)]
    if isinstance(atom, Function):
        taken = outer_names(atom.node) if changes_something(atom.node) else frozenset[str]()
        cells = [m.store.get((frame, name)) for frame in atom.frames for name in taken]
        return [value for value in cells if value is not None]
    if not isinstance(atom, Instance):
        return []
    if atom.cls in CONTAINERS:
        return m.elements(atom)
    if isinstance(atom.cls, ClassAtom) or not atom.cls:
        names = [n for n in m.store.names.get(atom, ()) if isinstance(n, str) and not n.startswith("#")]
        return [value for name in names if (value := m.store.get((atom, name))) is not None]
    return []


def _spoil(m: Machine, atom: Instance) -> None:
    from dslint.python import writing

    rest = m.store.get((atom, REST))
    if is_escaped(m, atom) and rest is not None and rest.atoms >= CHANGED.atoms:
        return
    m.store.set((atom, ESCAPED), TRUE)
    if atom.cls != "builtins.dict":
        writing.loosen(m, atom)
        writing._add_rest(m, atom, CHANGED)
        return
    for name in list(m.store.names.get(atom, ())):
        if isinstance(name, tuple) and name[0] == "key":
            held = m.store.get((atom, name))
            if held is not None and held.atoms:
                m.store.set((atom, name), join(held, CHANGED))
                m.store.set((atom, ("maybe", name[1])), TRUE)
    writing._add_rest(m, atom, CHANGED)
    m.store.set((atom, "#restkeys"), CHANGED)
