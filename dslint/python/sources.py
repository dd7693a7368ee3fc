"""Where the items of a loader and their order come from: its data set and its samplers, as they are when it is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from dslint.python import attributes
from dslint.python.heap import CONTAINERS
from dslint.python.values import Bound, ClassAtom, Function, Instance, Tuple, Value
from dslint.python.varies import LOST, ORDER, RANDOM, RANKED

if TYPE_CHECKING:
    from dslint.python.machine import Machine
    from dslint.python.source import Module

_ROLES = ("batch_sampler", "sampler", "dataset")
_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Source:
    """A data set or a sampler that a loader gets.

    `path` is its class where a library has it, else the nearest library class among its bases. `code` are the classes
    and functions of the project that it consists of, with all that hangs on it. `varies` are the causes for which ranks
    may hold other contents in it.
    """

    role: str
    made: ast.AST
    is_own: bool
    path: str
    bases: frozenset[str]
    code: tuple[tuple[Module, ast.AST], ...]
    varies: int
    # The fields of an object of the project that are in an order which each process may have drawn for itself; the
    # empty text is the object itself.
    ordered: frozenset[str] = frozenset()
    # The same for those of which chance decides how many items they hold.
    chosen: frozenset[str] = frozenset()


def loader_sources(m: Machine, given: Mapping[str, Value]) -> list[Source]:
    """Return the sources of a loader, the one that decides first; nothing where one of them is not certain."""
    values = _roles(given)
    found = [source for role, value in values if (source := _source(m, role, value)) is not None]
    return found if len(found) == len(values) else []


def loader_samplers(m: Machine, given: Mapping[str, Value]) -> list[Source]:
    """Return the sampler that decides what a loader takes of its data set, which nobody needs to know for it."""
    values = [(role, value) for role, value in _roles(given) if role in _ROLES[:2]]
    return [source for role, value in values[:1] if (source := _source(m, role, value)) is not None]


def _roles(given: Mapping[str, Value]) -> list[tuple[str, Value]]:
    """Return what is given to a loader in each role, the one that decides first."""
    return [(role, value) for role in _ROLES if (value := given.get(role)) is not None and value.constants != (None,)]


def makers_held(m: Machine, value: Value | None) -> frozenset[ast.AST]:
    """Return where a data set was made, and those in its fields."""
    pending = [(atom, 0) for atom in value.atoms] if value is not None else []
    found: set[Instance] = set()
    while pending:
        atom, depth = pending.pop()
        if not isinstance(atom, Instance) or atom in found:
            continue
        found.add(atom)
        for name in list(m.store.names.get(atom, ())) if depth < _MAX_DEPTH else ():
            inner = m.store.get((atom, name)) if isinstance(name, str) else None
            pending.extend((one, depth + 1) for one in (inner.atoms if inner is not None else ()))
    return frozenset(atom.node for atom in found)


def varies_within(m: Machine, value: Value | None) -> int:
    """Return the causes of difference of what a data set holds; nobody knows it of one that is not given."""
    atoms = [atom for atom in value.atoms if isinstance(atom, Instance)] if value is not None else []
    if value is None or not value.atoms:
        return LOST
    return reduce(or_, (_varies(m, value, atom) for atom in atoms), m.varies(value))


def trainer_sources(m: Machine, given: Mapping[str, Value], name: str) -> list[Source]:
    """Return the data sets that a trainer or an engine makes loaders of, as far as they are certain.

    `name` is the parameter for the one to train on.
    """
    values = [given[one] for one in (name, "eval_dataset") if one in given]
    return [source for value in values if (source := _source(m, "dataset", value)) is not None]


def _source(m: Machine, role: str, value: Value) -> Source | None:
    atom = value.single
    if not isinstance(atom, Instance) or not atom.cls:
        return None
    code = dict.fromkeys(_code(m, value, set(), 0))
    names = {str(base) for base in _lineage(m, atom) if isinstance(base, str)}
    path = atom.cls if isinstance(atom.cls, str) else next((b for b in _lineage(m, atom) if isinstance(b, str)), "")
    is_own = isinstance(atom.cls, ClassAtom)
    varies = _varies(m, value, atom)
    ordered = frozenset(_ordered(m, value, atom)) if varies & ORDER else frozenset()
    chosen = frozenset(_chosen(m, value, atom)) if varies & RANDOM else frozenset()
    return Source(role, atom.node, is_own, str(path), frozenset(names), tuple(code), varies, ordered, chosen)


def _varies(m: Machine, value: Value, atom: Instance) -> int:
    """Return the causes of difference of all that an object holds, what a library class was made of included.

    A truth value deals nothing out: it says who downloads, or who prints.
    """
    if atom.cls in CONTAINERS:
        return m.deep_varies(value) | m.shape(value) & RANKED
    varies = m.varies(value) | m.shape(value) & RANKED
    for name in list(m.store.names.get(atom, ())):
        held = m.store.get((atom, name))
        varies |= m.deep_varies(held) if held is not None and not held.is_truth else 0
    return varies


def _ordered(m: Machine, value: Value, atom: Instance) -> Iterator[str]:
    """Yield the fields of an object whose order each process may have drawn."""
    if m.varies(value) & ORDER or (atom.cls in CONTAINERS and m.deep_varies(value) & ORDER):
        yield ""
    for name in list(m.store.names.get(atom, ())):
        if isinstance(name, str) and not name.startswith("#"):
            held = m.store.get((atom, name))
            if held is not None and m.deep_varies(held) & ORDER:
                yield name


def _chosen(m: Machine, value: Value, atom: Instance) -> Iterator[str]:
    """Yield the fields of an object of which chance decides how many items they hold."""
    if m.shape(value) & RANDOM:
        yield ""
    for name in list(m.store.names.get(atom, ())):
        if isinstance(name, str) and not name.startswith("#"):
            held = m.store.get((atom, name))
            inner = held.single if held is not None else None
            if held is not None and isinstance(inner, Instance) and inner.cls in CONTAINERS and m.shape(held) & RANDOM:
                yield name


def _lineage(m: Machine, atom: Instance) -> list[ClassAtom | str]:
    if isinstance(atom.cls, ClassAtom):
        own = attributes.lineage(m, atom.cls)
        return [*own, *(r.path for b in own if isinstance(b, str) for r in m.libraries.lineage(b))]
    return [row.path for row in m.libraries.lineage(atom.cls)]


def _code(m: Machine, value: Value, seen: set[Instance], depth: int) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the classes and functions of the project that an object and what hangs on it are made of."""
    for atom in value.atoms:
        if isinstance(atom, Function):
            yield atom.module, atom.node
        elif isinstance(atom, Bound) and isinstance(atom.function, Function):
            yield atom.function.module, atom.function.node
        elif isinstance(atom, Tuple) and depth < _MAX_DEPTH:
            for item in atom.items:
                yield from _code(m, item, seen, depth + 1)
        elif isinstance(atom, Instance) and atom not in seen and depth <= _MAX_DEPTH:
            seen.add(atom)
            for base in _lineage(m, atom):
                if isinstance(base, ClassAtom):
                    yield base.module, base.node
            for name in list(m.store.names.get(atom, ())):
                held = m.store.get((atom, name))
                if held is not None:
                    yield from _code(m, held, seen, depth + 1)
