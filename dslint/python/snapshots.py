"""What dictionaries held at one moment: plain data, which the store of the interpretation may go on from."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from dslint.python import containers, dictionaries
from dslint.python.escapes import is_escaped
from dslint.python.heap import REST
from dslint.python.machine import Machine
from dslint.python.values import INPUT, Const, Instance, PerRank, Tuple, Unknown, Value, Written

# Dictionaries may hold each other many times over.
_DEEPEST, _MOST_ITEMS = 12, 600


@dataclass(frozen=True, slots=True)
class Known:
    """A number, a text, a truth value or `None`."""

    value: object


@dataclass(frozen=True, slots=True)
class Hidden:
    """A value that only a run knows, and why."""

    reason: str = "the program computes it"


@dataclass(frozen=True, slots=True)
class Items:
    """A list or tuple."""

    items: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """What a dictionary held under one key; `places` are where the program may have written it, in order."""

    value: Held
    places: tuple[Written, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """A dictionary: `node` made it. `is_open`: it may hold more; `is_lost`: it may hold anything."""

    node: ast.AST
    items: dict[str, Item]
    is_open: bool = False
    is_lost: bool = False


Held = Known | Hidden | Items | Dictionary
CONDITION = Hidden("its value depends on a condition")


def dictionary(m: Machine, atom: Instance) -> Dictionary:
    """Return what a dictionary holds now, and all below it."""
    return _Reader(m).dictionary(atom, 0)


class _Reader:
    """Reads one dictionary, as far as it is no larger than a configuration may be."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.left = _MOST_ITEMS

    def dictionary(self, atom: Instance, depth: int) -> Dictionary:
        """Return what a dictionary holds."""
        m = self.m
        found: dict[str, Item] = {}
        rest, keys = m.store.get((atom, REST)), m.store.get((atom, "#keys"))
        is_open = (rest is not None and bool(rest.atoms)) or m.content(atom) is not None
        is_open = is_open or any(not isinstance(choice, Tuple) for choice in (keys.atoms if keys is not None else ()))
        for name in list(m.store.names.get(atom, ())):
            key = name[1] if isinstance(name, tuple) and name[0] == "key" else None
            stored = m.store.get((atom, name)) if key is not None else None
            if stored is None or not stored.atoms:
                continue
            if not isinstance(key, str):
                is_open = True
                continue
            places = _ordered(dictionaries.place_of(m, atom, key, atom.node)) or (Written(atom.node, atom.node),)
            maybe = dictionaries.may_lack(m, atom, key)
            found[key] = Item(CONDITION if maybe else self.held(stored, depth + 1), places)
        items = dict(sorted(found.items(), key=lambda pair: (*_position(pair[1].places[0]), pair[0])))
        return Dictionary(atom.node, items, is_open, is_escaped(m, atom))

    def held(self, value: Value, depth: int) -> Held:
        """Return what a value is, as far as one thing is certain."""
        m, atom = self.m, value.single
        self.left -= 1
        if atom is None:
            is_choice = all(isinstance(a, Const | PerRank | Instance | Tuple) for a in value.atoms)
            return CONDITION if is_choice else Hidden()
        if isinstance(atom, Const):
            plain = isinstance(atom.value, str | int | float | bool | None)
            return Known(atom.value) if plain else Hidden("no value that JSON can hold")
        if isinstance(atom, PerRank):
            return Hidden("it differs between the ranks")
        if isinstance(atom, Unknown):
            return _unknown(atom)
        is_list = isinstance(atom, Tuple) and atom.is_tuple
        if depth > _DEEPEST or self.left < 0 or not (is_list or isinstance(atom, Instance)):
            return Hidden()
        if isinstance(atom, Instance) and atom.cls == "builtins.dict":
            inner = self.dictionary(atom, depth)
            return Hidden() if inner.is_lost else inner
        if isinstance(atom, Instance) and (atom.cls != "builtins.list" or is_escaped(m, atom)):
            content = m.content(atom)
            if content is not None and isinstance(content.single, Unknown) and content.single.kind == INPUT:
                return _unknown(content.single)
            return Hidden("the result of a call") if isinstance(atom.node, ast.Call) else Hidden()
        items = containers.exact_items(m, value)
        return Hidden() if items is None else Items(tuple(self.held(item, depth + 1) for item in items))


def joined(first: Dictionary, second: Dictionary) -> Dictionary:
    """Return what a dictionary holds for certain that held one or the other."""
    items: dict[str, Item] = {}
    for key in {**first.items, **second.items}:
        mine, theirs = first.items.get(key), second.items.get(key)
        both = [item for item in (mine, theirs) if item is not None]
        places = tuple(dict.fromkeys(place for item in both for place in item.places))
        items[key] = Item(_either(both[0].value, both[1].value) if len(both) == 2 else CONDITION, places)
    is_open, is_lost = first.is_open or second.is_open, first.is_lost or second.is_lost
    return Dictionary(first.node, items, is_open, is_lost)


def _either(first: Held, second: Held) -> Held:
    if isinstance(first, Dictionary) and isinstance(second, Dictionary) and first.node is second.node:
        return joined(first, second)
    same = isinstance(first, Known) and isinstance(second, Known) and type(first.value) is type(second.value)
    if isinstance(first, Known) and not same:
        return CONDITION
    return first if first == second else CONDITION


def _unknown(atom: Unknown) -> Hidden:
    is_parameter = atom.kind == INPUT and atom.reason.startswith("parameter `")
    return Hidden("an argument of the function") if is_parameter else Hidden()


def _ordered(place: Value) -> tuple[Written, ...]:
    return tuple(sorted((a for a in place.atoms if isinstance(a, Written)), key=_position))


def _position(place: Written) -> tuple[int, int]:
    return getattr(place.key, "lineno", 0), getattr(place.key, "col_offset", 0)
