"""The way of one rank through its trace: what comes next, and what a ``return`` or ``break`` leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import libcst as cst

from dslint.model.script.traces.elements import (
    Choice,
    Decided,
    Element,
    Leave,
    Maybe,
    Op,
    Protected,
    Repeat,
    Scope,
    Trace,
    parts,
    rebuilt,
)

After = tuple[tuple[Decided, ...], tuple[Decided, ...]]


class Rest(NamedTuple):
    """What a rank still has to do: one element and then the rest. ``mark``: an element, or the end of something."""

    head: Element | End
    tail: Rest | None


@dataclass(frozen=True, slots=True)
class End:
    """The end of a function (``scope``), of one turn of a loop (``turn``) or of a loop (``loop``)."""

    kind: str
    final: Trace = ()


class Path(NamedTuple):
    """A way through the choices that the two ranks do not make alike.

    ``chosen``: the arm taken for each symbol; ``skipped``: by side, what the arms hold that only this side skipped.
    """

    after: After = ((), ())
    chosen: tuple[tuple[str, bool], ...] = ()
    skipped: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())


def taken(choice: Choice, arm: bool, rest: Rest) -> Rest | None:
    """What comes when the choice at the head of ``rest`` is made."""
    return push(choice.then if arm else choice.orelse, rest.tail)


def survived(element: Element | End) -> tuple[tuple[str, bool], ...]:
    """What is known after ``if flag: return``: who goes on has the other arm."""
    if not isinstance(element, Choice):
        return ()
    gone = [bool(arm) and type(arm[-1]) is Leave for arm in (element.then, element.orelse)]
    return ((element.symbol, gone[1]),) if gone[0] is not gone[1] else ()


def push(trace: Trace, rest: Rest | None) -> Rest | None:
    """The trace, and then the rest."""
    for element in reversed(trace):
        rest = Rest(element, rest)
    return rest


def unrolled(loop: Repeat, rest: Rest | None, *, alone: bool = False) -> Rest | None:
    """Two turns of a loop, and what follows it.

    Of an endless loop each rank takes as many turns as it likes. Who goes on to the next one by ``continue`` is lost
    there, and nothing is known of a rank that runs the loop ``alone`` after its first turn.
    """
    body = loop.body
    if is_endless(loop):
        body = _uncounted(body)
        if alone:
            again = Maybe(cst.Call(cst.Name("turn")))  # in its further turns it runs nobody knows what
            return push(body, Rest(End("turn"), Rest(again, Rest(End("loop"), rest))))
    second = push(body, Rest(End("turn"), Rest(End("loop"), rest)))
    return push(body, Rest(End("turn"), second))


def is_endless(loop: Repeat) -> bool:
    """``while True``: only what stands in the loop ends it."""
    return loop.symbol in ("while True", "while 1")


def _uncounted(trace: Trace) -> Trace:
    """The turn of an endless loop, with each ``continue`` of this loop lost."""
    return tuple(
        Leave("lost")
        if isinstance(e, Leave) and e.kind == "continue"
        else e
        if isinstance(e, Repeat | Scope)
        else rebuilt(e, _uncounted)
        for e in trace
    )


def settled(rest: Rest | None, after: tuple[Decided, ...]) -> tuple[Rest | None, tuple[Decided, ...]] | None:
    """Go on to the next element in which something happens; ``None`` when the process fails."""
    while rest is not None:
        head, tail = rest
        if isinstance(head, Decided):
            after = (*after, head)
            rest = tail
        elif isinstance(head, End):
            rest = push(head.final, tail)
        elif isinstance(head, Scope):
            rest = push(head.body, Rest(End("scope"), tail))
        elif isinstance(head, Protected):
            rest = push(head.body, Rest(End("final", head.final), tail))
        elif isinstance(head, Leave):
            if head.kind in ("crash", "lost"):
                return None
            rest = left_by(head.kind, tail)
        else:
            break
    return rest, after


_ENDS = {"return": "scope", "break": "loop", "continue": "turn"}


def left_by(kind: str, rest: Rest | None) -> Rest | None:
    """What follows a ``return``, ``break``, ``continue`` or ``exit``."""
    wanted = _ENDS.get(kind, "")
    while rest is not None:
        head, tail = rest
        if isinstance(head, End):
            if head.kind == wanted:
                return tail
            if head.kind == "final" and head.final:
                return push(head.final, Rest(Leave(kind), tail))
        rest = tail
    return None


def passes_by(element: Element | End, across: Rest | None) -> bool:
    """A loop in which this rank runs nothing but ``break`` or ``continue``, and which the other does not come to here.

    The next loop over the same things is no partner of it.
    """
    if not isinstance(element, Repeat) or may_leave(element) or _runs(element.body):
        return False
    partner = across.head if across is not None else None
    return not (isinstance(partner, Repeat) and partner.loop is element.loop)


def _runs(trace: Trace) -> bool:
    return any(isinstance(e, Op | Maybe) or any(map(_runs, parts(e))) for e in trace)


def may_leave(element: Element) -> bool:
    """The function may end here: what leaves a called function or a loop goes no further."""
    if isinstance(element, Leave):
        return True
    inner = (e for p in parts(element) for e in p)
    if isinstance(element, Scope):
        return any(isinstance(e, Leave) and e.kind == "end" for e in inner)
    if isinstance(element, Repeat):
        return any(may_leave(e) and not (isinstance(e, Leave) and e.kind in ("break", "continue")) for e in inner)
    return any(map(may_leave, inner))
