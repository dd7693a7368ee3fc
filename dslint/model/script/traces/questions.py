"""Questions to traces that only their recording asks: may they end, and what do they depend on."""

from __future__ import annotations

from dslint.model.script.traces.elements import Choice, Element, Leave, Scope, Trace, parts


def has_choice(trace: Trace) -> bool:
    """Something in it is decided at its first level."""
    return any(type(e) is Choice for e in trace)


def leaves_itself(trace: Trace) -> bool:
    """Some path through it leaves, and not only within a function that it calls."""
    return any(type(e) is Leave or (type(e) is not Scope and any(map(leaves_itself, parts(e)))) for e in trace)


def asks(element: Element) -> bool:
    """Something in it depends on a test, which an argument may decide."""
    return type(element) is Choice or any(asks(inner) for part in parts(element) for inner in part)


def may_end(trace: Trace) -> bool:
    """The process may end in it."""
    return any((isinstance(e, Leave) and e.kind == "end") or any(map(may_end, parts(e))) for e in trace)
