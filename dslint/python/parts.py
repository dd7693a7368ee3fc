"""What a model holds beside parameters and buffers: plain attributes, and the arguments of its layers.

A library that wraps a model for several ranks makes parameters and buffers equal. What differs here stays different.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.python import attributes
from dslint.python.heap import REGISTERED
from dslint.python.values import NOTHING, Const, Instance, PerRank, Tuple, Unknown, Value
from dslint.python.varies import CLOCK, DATA, LOST, RANDOM

if TYPE_CHECKING:
    from dslint.python.machine import Machine
    from dslint.python.source import Module

# The names of all cells of an object.
_Names = Mapping[object, Iterable[object]]
_MAX_DEPTH = 6
_MAX_MODULES = 10
# What a file listing or an environment says is the same on all machines of most jobs, and the rank itself is meant.
_CAUSES = DATA | CLOCK | RANDOM
_PLAIN = frozenset({"builtins.int", "builtins.float", "builtins.bool", "torch.Tensor", "numpy.ndarray"})
_SHARED = ("torch.nn.Parameter", "torch.nn.Module")
_LISTS = frozenset({"builtins.list", "builtins.tuple", "builtins.dict"})


@dataclass(frozen=True, slots=True)
class Part:
    """A number or tensor in a model that differs between ranks: an attribute, or an argument of a library layer."""

    model: Instance
    name: str
    is_attribute: bool
    value: Value
    varies: int
    origin: tuple[Module, ast.AST] | None


def own_parts(m: Machine, value: Value) -> list[Part]:
    """Return the numbers in a model that each rank has of its own."""
    found: dict[tuple[Instance, str], Part] = {}
    for part in _parts(m, value, m.store.names, set(), 0):
        found.setdefault((part.model, part.name), part)
    return list(found.values())


def _parts(m: Machine, value: Value, names: _Names, seen: set[Instance], depth: int) -> Iterator[Part]:
    for atom in value.atoms:
        if isinstance(atom, Tuple) and depth < _MAX_DEPTH:
            for item in atom.items:
                yield from _parts(m, item, names, seen, depth + 1)
        if not isinstance(atom, Instance) or atom in seen or depth > _MAX_DEPTH:
            continue
        seen.add(atom)
        if atom.cls in _LISTS or atom.cls == "builtins.iterator":
            for item in (*m.elements(atom), m.store.get((atom, "#yields")) or NOTHING):
                yield from _parts(m, item, names, seen, depth + 1)
        elif attributes.is_instance_of(m, atom.cls, "torch.nn.Module"):
            yield from _of_module(m, atom, names, seen, depth)


def _of_module(m: Machine, atom: Instance, names: _Names, seen: set[Instance], depth: int) -> Iterator[Part]:
    for name in list(names.get(atom, ())):
        is_attribute = isinstance(name, str)
        word = name[1] if isinstance(name, tuple) and name[0] == "argument" else name
        held = m.store.get((atom, name))
        if not isinstance(word, str) or word.startswith("#") or held is None:
            continue
        if is_attribute and isinstance(atom.cls, str):
            continue  # a field of a library object says its argument once more
        yield from _parts(m, held, names, seen, depth + 1)
        if m.store.get((atom, (REGISTERED, word))) is not None:
            continue
        varies = m.varies(held)
        if varies & _CAUSES and not varies & LOST and (_is_number(held) or (varies & DATA and _is_plain(m, held))):
            yield Part(atom, word, is_attribute, held, varies, m.origin(held))


def _is_plain(m: Machine, value: Value) -> bool:
    """Nothing that a library makes equal on all ranks, and nothing that is called."""
    made = [a for a in value.atoms if isinstance(a, Instance)]
    is_known = all(isinstance(a, Instance | Unknown | Const | PerRank | Tuple) for a in value.atoms)
    return is_known and not any(attributes.is_instance_of(m, a.cls, *_SHARED) for a in made)


def _is_number(value: Value) -> bool:
    """All that differs is a number or a tensor: no parameter, no file, nothing of unknown class."""
    kinds = [a.cls if isinstance(a, Instance) else a.type for a in value.atoms if isinstance(a, Instance | Unknown)]
    return bool(kinds) and all(kind in _PLAIN for kind in kinds)


def modules_in(m: Machine, values: Iterable[Value]) -> frozenset[Instance]:
    """Return the modules that values may be, and all that stand inside: in fields, containers, and arguments."""
    found: set[Instance] = set()
    pending = [(value, 0) for value in values]
    seen: set[object] = set()
    while pending:
        value, depth = pending.pop()
        for atom in value.atoms:
            if atom in seen or depth > _MAX_MODULES:
                continue
            seen.add(atom)
            if isinstance(atom, Tuple):
                pending.extend((item, depth + 1) for item in atom.items)
            elif isinstance(atom, Instance) and atom.cls in _LISTS:
                pending.extend((item, depth + 1) for item in m.elements(atom))
            elif isinstance(atom, Instance) and attributes.is_instance_of(m, atom.cls, "torch.nn.Module"):
                found.add(atom)
                held = (m.store.get((atom, name)) for name in list(m.store.names.get(atom, ())))
                pending.extend((value, depth + 1) for value in held if value is not None)
    return frozenset(found)
