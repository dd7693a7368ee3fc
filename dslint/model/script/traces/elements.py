"""What a trace is made of: operations, choices, repetitions, and the ways to leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, Union

import libcst as cst

from dslint.model.script.across.project import Foreign
from dslint.model.script.collective.collectives import Collective


@dataclass(frozen=True, slots=True)
class Op:
    """A collective that the rank takes part in.

    ``call`` is the call in the function that is traced; ``through`` the function of the project that it runs when the
    collective itself stands there; ``foreign`` says so when that function stands in another file.
    """

    collective: Collective
    call: cst.Call
    through: cst.FunctionDef | None = None
    foreign: Foreign | None = None

    @property
    def key(self) -> str:
        """The operation for matching: ``barrier``, ``all_reduce``."""
        return self.collective.key


@dataclass(frozen=True, slots=True)
class Maybe:
    """A call of something unknown that sounds like the counterpart of a collective, or that makes another group."""

    call: cst.Call


@dataclass(frozen=True, slots=True)
class Choice:
    """A branch whose test is the same on all ranks, as far as is known. ``symbol`` is the text of the test.

    ``inner``: it stands in a called function, where its arguments or the object may decide. ``split``: it is what is
    left of a test that some rank decides (``flag`` of ``rank == 0 and flag``).
    """

    symbol: str
    then: Trace
    orelse: Trace
    inner: bool = False
    split: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop that all ranks run equally often, as far as is known.

    ``symbol`` is the text of its header: equal ones run equally often. ``loop`` tells two loops over the same apart.
    """

    symbol: str
    body: Trace
    loop: cst.CSTNode | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Scope:
    """The body of a called function: a ``return`` inside ends it and nothing else."""

    body: Trace


@dataclass(frozen=True, slots=True)
class Protected:
    """``try`` with ``finally``: whatever leaves the body runs ``final`` first."""

    body: Trace
    final: Trace


@dataclass(frozen=True, slots=True)
class Leave:
    """``return`` | ``break`` | ``continue`` | ``end`` (of the process) | ``crash`` (it fails, and the job with it).

    ``lost``: some ranks leave here, and nobody knows which.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class Hole:
    """The ``yield`` of a context manager: the body of the ``with`` runs here."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A test that came out differently on some other rank; nothing happens here. ``owner``: the statement of it."""

    test: cst.CSTNode
    owner: cst.CSTNode


Element: TypeAlias = Union[  # noqa: UP007
    Op, Maybe, Choice, Repeat, Scope, Protected, Leave, Hole, Decided
]
Trace: TypeAlias = "tuple[Element, ...]"


def speaks(trace: Trace) -> bool:
    """Something in it can tell ranks apart: an operation, or a way out."""
    return any(type(e) is not Decided and type(e) is not Hole for e in trace)


def operations(trace: Trace, *, certain: bool = False) -> list[Op]:
    """Every operation, in any branch; ``certain``: without those that stand behind a condition of a called function."""
    found: list[Op] = []
    for element in trace:
        if type(element) is Op:
            found.append(element)
        elif not (certain and isinstance(element, Choice) and element.inner):
            for part in parts(element):
                found += operations(part, certain=certain)
    return found


def rebuilt(element: Element, change: Callable[[Trace], Trace]) -> Element:
    """The element with each trace inside it changed."""
    if isinstance(element, Choice):
        return replace(element, then=change(element.then), orelse=change(element.orelse))
    if isinstance(element, Repeat | Scope):
        return replace(element, body=change(element.body))
    if isinstance(element, Protected):
        return Protected(change(element.body), change(element.final))
    return element


def resolved(trace: Trace, chosen: Mapping[str, bool]) -> Trace:
    """The trace with the arms of the choices that are made."""
    found: list[Element] = []
    for element in trace:
        arm = chosen.get(element.symbol) if isinstance(element, Choice) else None
        if isinstance(element, Choice) and arm is not None:
            found += resolved(element.then if arm else element.orelse, chosen)
        else:
            found.append(rebuilt(element, lambda part: resolved(part, chosen)))
    return tuple(found)


def filled(trace: Trace, body: Trace) -> Trace:
    """The trace of a context manager around the body of a ``with``."""
    return tuple(
        inner for e in trace for inner in (body if type(e) is Hole else (rebuilt(e, lambda part: filled(part, body)),))
    )


def has_hole(trace: Trace) -> bool:
    """It is that of a context manager."""
    return any(type(e) is Hole or any(map(has_hole, parts(e))) for e in trace)


def parts(element: Element) -> tuple[Trace, ...]:
    """The traces inside an element."""
    if isinstance(element, Choice):
        return element.then, element.orelse
    if isinstance(element, Repeat | Scope):
        return (element.body,)
    return (element.body, element.final) if isinstance(element, Protected) else ()


def leaves_early(trace: Trace) -> bool:
    """Some path through it may leave."""
    return any(type(e) is Leave or any(map(leaves_early, parts(e))) for e in trace)


def shape(trace: Trace) -> tuple[object, ...]:
    """The trace without places: equal shapes behave alike."""
    return tuple(s for s in map(_shape, trace) if s is not None)


def _shape(element: Element) -> tuple[object, ...] | None:
    if isinstance(element, Op):
        return "op", element.key
    if isinstance(element, Maybe):
        return "maybe", id(element.call)
    if isinstance(element, Choice):
        return "choice", element.symbol, shape(element.then), shape(element.orelse)
    if isinstance(element, Repeat):
        return "repeat", element.symbol, shape(element.body)
    if isinstance(element, Scope):
        return "scope", shape(element.body)
    if isinstance(element, Protected):
        return "protected", shape(element.body), shape(element.final)
    return ("leave", element.kind) if isinstance(element, Leave) else None
