"""What the reader of Python configs knows at one point of a program: names, dicts, and how two paths join."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

Scalar: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class Known:
    """A value that JSON can hold."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Hidden:
    """A value that only a run knows."""

    reason: str = "the program computes it"


@dataclass(frozen=True, slots=True)
class Ref:
    """A dict; what it holds stands in ``World.heap``, so that two names of one dict stay one dict."""

    number: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list or tuple."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several dicts: each branch made its own."""

    refs: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Local:
    """A function of this file. ``is_nested``: it sees the names of the function around it."""

    node: ast.FunctionDef
    is_nested: bool = False


Value: TypeAlias = "Known | Hidden | Ref | Items | Choice | Local"
CONDITION = Hidden("its value depends on a condition")


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of a dict. ``key`` and ``at`` are where key and value stand; ``in_display``: as ``key: value``."""

    value: Value
    key: ast.expr | ast.keyword
    at: ast.expr
    in_display: bool = False


@dataclass(frozen=True, slots=True)
class Dict:
    """What a dict holds. ``node`` made it. ``is_open``: it may have more members. ``is_lost``: anything may be in it.

    ``doubled`` are keys that stand twice in the display: (key, first, second).
    """

    node: ast.expr
    members: Mapping[str, Member]
    is_open: bool = False
    is_lost: bool = False
    doubled: tuple[tuple[str, ast.expr, ast.expr], ...] = ()


@dataclass(slots=True)
class World:
    """The state at one point. ``names`` of the running function, ``top`` of the module."""

    heap: dict[int, Dict] = field(default_factory=dict)
    names: dict[str, Value] = field(default_factory=dict)
    top: dict[str, Value] = field(default_factory=dict)

    def copy(self) -> World:
        """The same state for another path."""
        names = dict(self.names)
        return World(dict(self.heap), names, names if self.top is self.names else dict(self.top))

    def become(self, other: World) -> None:
        """Go on with another state, in place."""
        at_top = self.top is self.names
        self.heap, self.names = other.heap, other.names
        self.top = self.names if at_top else other.top

    def refs(self, value: Value) -> Iterator[Ref]:
        """The dicts that a value is, or holds in a list."""
        if isinstance(value, Ref):
            yield value
        elif isinstance(value, Choice):
            yield from value.refs
        elif isinstance(value, Items):
            for item in value.items:
                yield from self.refs(item)

    def reach(self, value: Value) -> list[Ref]:
        """The dicts that a value is or holds, at any depth, as far as they are known."""
        found: dict[Ref, None] = {}
        pending = list(self.refs(value))
        while pending:
            ref = pending.pop()
            state = self.heap.get(ref.number)
            if state is not None and not state.is_lost and ref not in found:
                found[ref] = None
                for member in state.members.values():
                    pending += self.refs(member.value)
        return list(found)

    def lose(self, value: Value) -> None:
        """Other code has the value and may change all that it reaches."""
        for ref in self.reach(value):
            self.heap[ref.number] = replace(self.heap[ref.number], is_lost=True)


def hide(state: Dict) -> Dict:
    """Any member may have got another value."""
    members = {k: replace(m, value=Hidden()) for k, m in state.members.items()}
    return replace(state, members=members, is_open=True)


def joined(worlds: Iterable[World | None]) -> World | None:
    """The state where several paths meet; ``None`` where none arrives."""
    alive = [world for world in worlds if world is not None]
    if not alive:
        return None
    first = alive[0]
    for other in alive[1:]:
        first = _join(first, other)
    return first


def _join(a: World, b: World) -> World:
    heap = dict(a.heap)
    for number, state in b.heap.items():
        mine = heap.get(number)
        heap[number] = state if mine is None or mine is state else _join_dicts(mine, state)
    names = _join_names(a.names, b.names)
    return World(heap, names, names if a.top is a.names else _join_names(a.top, b.top))


def _join_names(a: Mapping[str, Value], b: Mapping[str, Value]) -> dict[str, Value]:
    return {name: _join_values(a.get(name, CONDITION), b.get(name, CONDITION)) for name in {**a, **b}}


def _join_values(a: Value, b: Value) -> Value:
    if a == b and type(a) is type(b) and not _is_other_number(a, b):
        return a
    refs = [*_dicts(a), *_dicts(b)]
    if refs and _dicts(a) and _dicts(b):
        return Choice(tuple(dict.fromkeys(refs)))
    return CONDITION


def _is_other_number(a: Value, b: Value) -> bool:
    """``1 == True`` for Python, not for JSON."""
    return isinstance(a, Known) and isinstance(b, Known) and type(a.value) is not type(b.value)


def _dicts(value: Value) -> tuple[Ref, ...]:
    return (value,) if isinstance(value, Ref) else value.refs if isinstance(value, Choice) else ()


def _join_dicts(a: Dict, b: Dict) -> Dict:
    members: dict[str, Member] = {}
    for key in {**a.members, **b.members}:
        mine, theirs = a.members.get(key), b.members.get(key)
        if mine is not None and theirs is not None:
            same = mine.value == theirs.value and not _is_other_number(mine.value, theirs.value)
            members[key] = mine if same else replace(mine, value=CONDITION)
        else:
            only = mine or theirs
            if only is not None:
                members[key] = replace(only, value=CONDITION)
    return replace(a, members=members, is_open=a.is_open or b.is_open, is_lost=a.is_lost or b.is_lost)
