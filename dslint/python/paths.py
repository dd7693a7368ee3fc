"""Where a path leads: paths keep in `Value.number` what they are made of, so that two can be compared.

A path is a tuple of components. A component is a text, the number of something unknown, or a tuple of both, as in
`f"rank{rank}.json"`. Two paths with equal components are one file; one that continues another lies inside of it.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from dslint.python.heap import RECEIVED
from dslint.python.joins import join
from dslint.python.places import ordered
from dslint.python.values import INPUT, Const, Instance, PerRank, Unknown, Value, one
from dslint.python.varies import CLOCK, LOST, RANDOM

if TYPE_CHECKING:
    from dslint.python.machine import Machine

Component = Hashable
_WORD = "path"
# Where the store keeps it for an object.
MADE_OF = "#path"
# A path of more components is not kept.
_MAX = 24


def known(m: Machine, value: Value) -> Value:
    """Return a path with what is known of its making, also where only the object is at hand."""
    atom = value.single
    if not isinstance(atom, Instance) or _is_named(value):
        return value
    stored = m.store.get((atom, MADE_OF))
    return _with(value, stored.number) if stored is not None else value


def made(m: Machine, value: Value) -> Value:
    """Keep with the object what a path is made of: a method gets the object only."""
    atom = value.single
    if isinstance(atom, Instance) and _is_named(value):
        m.store.set((atom, MADE_OF), value)
    return value


def one_path(m: Machine, first: Value, second: Value) -> Value | None:
    """Return a value that is the same path on two ways, a text on one and an object on the other; else `None`."""
    if not any(_is_path(atom) for atom in first.atoms | second.atoms):
        return None
    first, second = known(m, first), known(m, second)
    found = components(first)
    if not found or found != components(second):
        return None
    return _named(join(first, second), found)


def components(value: Value | None) -> tuple[Component, ...] | None:
    """Return what a path is made of; `None` where that is not known."""
    if value is None:
        return None
    tokens = _tokens(value)
    return None if tokens is None else _split(tokens)


def each(m: Machine, value: Value | None, depth: int = 4) -> list[tuple[Component, ...]]:
    """Return what each of several paths is made of, as far as that is known; nothing for one path."""
    if value is None or _is_named(value) or not depth:
        return []
    choice = m.chosen.get(value.number)
    parts = [one(atom) for atom in ordered(value.atoms) if _is_path(atom)] if len(value.atoms) > 1 else []
    found: list[tuple[Component, ...]] = []
    for part in (choice.first, choice.second) if choice is not None else parts:
        path = components(known(m, part))
        found += each(m, part, depth - 1) or ([path] if path else [])
    return found


def made_of(value: Value) -> object:
    """Return what a value says of the path that it is; `None` for any other value."""
    return value.number if _is_named(value) else None


def is_within(inner: tuple[Component, ...], outer: tuple[Component, ...]) -> bool:
    """Return whether a path is another one or lies inside of it."""
    return len(inner) >= len(outer) > 0 and inner[: len(outer)] == outer


def joined(values: Iterable[Value], result: Value, *, node: ast.AST, between: str = "/") -> Value:
    """Return `result` as the path that is made of these parts."""
    tokens: list[object] = []
    for at, value in enumerate(values):
        found = _tokens(value)
        if found is None:
            if at == 0:
                return result
            found = [("?", id(node), at)]  # some name, the same wherever the value goes
        if at and between:
            tokens.append(between)
        tokens += found
    return _named(result, _split(tokens))


def derived(how: str, operands: list[Value], result: Value, node: ast.AST) -> Value:
    """Return `result` as a path that is made from others: `join`, `same`, `parent` or `beside`."""
    if not operands:
        return result
    if how in ("join", "same"):
        return joined(operands if how == "join" else operands[:1], result, node=node)
    found = components(operands[0])
    if found is None:
        return result
    if how == "parent":
        # What nobody can look into has a parent of its own.
        return _named(result, found[:-1] if len(found) > 1 else (("parent", found),))
    tail = tuple(value.number if value.number is not None else value.single for value in operands[1:])
    return _named(result, (*found[:-1], ("beside", found[-1], tail))) if None not in tail else result


def divided(m: Machine, left: Value, right: Value, node: ast.AST) -> Value | None:
    """Return `folder / name`; `None` where neither side is certainly a path."""
    if not any(_is_path(atom) for atom in left.atoms | right.atoms):
        is_open = all((isinstance(a, Instance) and a.cls == "") or _is_input(a) for a in left.atoms)
        if not left.atoms or not is_open or not _is_text(right):
            return None
    thing = m.thing(node, "a path", (left, right), "pathlib.Path")
    return made(m, joined((known(m, left), known(m, right)), thing, node=node))


def _is_path(atom: object) -> bool:
    return isinstance(atom, Instance) and atom.cls in ("pathlib.Path", "pathlib.PurePath")


def _is_input(atom: object) -> bool:
    return isinstance(atom, Unknown) and not atom.type


def _is_text(value: Value) -> bool:
    return bool(value.atoms) and all(
        (isinstance(atom, Const) and isinstance(atom.value, str))
        or (isinstance(atom, Unknown) and atom.type == "builtins.str")
        or (isinstance(atom, PerRank) and all(isinstance(v, str) for v in atom.values))
        for atom in value.atoms
    )


def _named(value: Value, found: tuple[Component, ...] | None) -> Value:
    if not found or len(found) > _MAX:
        return value
    return _with(value, (_WORD, found))


def _with(value: Value, number: object) -> Value:
    return Value(value.atoms, value.varies, value.shape, value.made_by, number, value.origin)


def _is_named(value: Value) -> bool:
    return isinstance(value.number, tuple) and len(value.number) == 2 and value.number[0] == _WORD


def own_part(found: tuple[Component, ...]) -> int | None:
    """Return the place of the first component that each process makes for itself: of its clock or of chance."""
    for at, component in enumerate(found):
        parts = component[1:] if isinstance(component, tuple) and component[:1] == ("mixed",) else (component,)
        if any(isinstance(part, tuple) and part[:1] == ("own",) for part in parts):
            return at
    return None


def _tokens(value: Value) -> list[object] | None:
    """Return the texts and unknown parts of a path in their order; `/` stands in the texts only."""
    if value.varies & (CLOCK | RANDOM) and not value.varies & LOST and not _is_named(value) and value.origin:
        return [("own", id(value.origin[1]))]  # the same wherever the value goes
    atom = value.single
    if isinstance(atom, Const):
        return [atom.value] if isinstance(atom.value, str) else [str(atom.value)]
    number = value.number
    if isinstance(number, tuple) and _is_named(value):
        return list(_flat(number[1]))
    if isinstance(atom, PerRank):
        return [atom]
    if number is not None:
        return [number]
    if isinstance(atom, Instance):
        return [atom]
    # One of several: an option or what it is by default.
    unknown = [a for a in value.atoms if isinstance(a, Unknown)]
    is_one = len(value.atoms) > 1 and all(a.kind == INPUT for a in unknown)
    return [("one of", value.atoms)] if is_one or any(a.reason == RECEIVED for a in unknown) else None


def _flat(found: tuple[Component, ...]) -> Iterator[object]:
    for at, component in enumerate(found):
        if at:
            yield "/"
        if isinstance(component, tuple) and component and component[0] == "mixed":
            yield from component[1:]
        else:
            yield component


def _split(tokens: Iterable[object]) -> tuple[Component, ...]:
    """Return the components of a path: the tokens between the slashes."""
    found: list[list[object]] = [[]]
    is_rooted = False
    for token in tokens:
        if not isinstance(token, str):
            found[-1].append(token)
            continue
        first, *others = token.split("/")
        is_rooted = is_rooted or (not any(found) and not first and bool(others))
        for at, text in enumerate((first, *others)):
            if at:
                found.append([])
            if text:
                _append(found[-1], text)
    named = [_component(parts) for parts in found if parts and parts != ["."]]
    return ("", *named) if is_rooted else tuple(named)


def _append(parts: list[object], text: str) -> None:
    last = parts[-1] if parts else None
    if isinstance(last, str):
        parts[-1] = last + text
    else:
        parts.append(text)


def _component(parts: list[object]) -> Component:
    return parts[0] if len(parts) == 1 else ("mixed", *parts)


__all__ = [
    "MADE_OF",
    "components",
    "derived",
    "divided",
    "each",
    "is_within",
    "joined",
    "known",
    "made",
    "made_of",
    "one_path",
    "own_part",
]
