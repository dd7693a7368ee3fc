"""How often each operation still comes on two ranks, and which of them certainly has no partner."""

from __future__ import annotations

from math import inf

from dslint.model.script.traces.elements import (
    Choice,
    Element,
    Maybe,
    Op,
    Repeat,
    Trace,
    operations,
    parts,
    rebuilt,
    resolved,
    shape,
)
from dslint.model.script.traces.path import End, Path, Rest, may_leave, settled, taken


def lonely(one: Rest | None, other: Rest | None, path: Path) -> list[tuple[int, Op]]:
    """The operations, each with its side, that this side certainly runs more often than the other from here on."""
    rests = _without_same_loops(*differing(ahead(one, path), ahead(other, path)))
    counts = _counts(rests[0]), _counts(rests[1])
    sites = [{id(op.call) for op in operations(r)} for r in rests]
    found: list[tuple[int, Op]] = []
    for side in (0, 1):
        for op in operations(rests[side], certain=True):
            low, high = counts[side].get(op.key, (0, 0))
            their_high = counts[1 - side].get(op.key, (0, 0))[1]
            if low > their_high or (their_high == 0 and high > 0):
                found.append((side, op))
    # Where both run the common code, the lonely call is the one that the other does not reach.
    return [(side, op) for side, op in found if id(op.call) not in sites[1 - side]] or found


def differing(one: Trace, other: Trace) -> tuple[Trace, Trace]:
    """Without what both do at the end, the same calls in the same order."""
    end = 0
    while end < min(len(one), len(other)) and _calls((one[-1 - end],)) == _calls((other[-1 - end],)):
        if not is_same(one[-1 - end], other[-1 - end]):
            break
        end += 1
    return (one[:-end], other[:-end]) if end else (one, other)


def _without_same_loops(one: Trace, other: Trace) -> tuple[Trace, Trace]:
    """Without the loops that both come to, which they run equally often: how often, nobody knows."""
    kept, rest = [], list(other)
    for element in one:
        at = None
        if isinstance(element, Repeat) and not may_leave(element):
            calls = _calls((element,))
            at = next((i for i, e in enumerate(rest) if _calls((e,)) == calls and is_same(e, element)), None)
        if at is None:
            kept.append(element)
        else:
            del rest[at]
    return tuple(kept), tuple(rest)


def _calls(trace: Trace) -> list[int]:
    return [id(op.call) for op in operations(trace)]


def is_same(a: Element, b: Element) -> bool:
    """They behave alike."""
    return a is b or shape((a,)) == shape((b,))


def ahead(rest: Rest | None, path: Path) -> Trace:
    """What still comes, up to the first sure way out of everything, by the arms that this path has chosen."""
    chosen = dict(path.chosen)
    found: list[Element] = []
    while rest is not None:
        reached = settled(rest, ())
        if reached is None or reached[0] is None:
            break
        rest = reached[0]
        head = rest.head
        if isinstance(head, Choice) and head.symbol in chosen:
            rest = taken(head, chosen[head.symbol], rest)
            continue
        if not isinstance(head, End):
            found.append(rebuilt(head, lambda part: resolved(part, chosen)) if chosen else head)
        rest = rest.tail
    return tuple(found)


def has_maybe(trace: Trace) -> bool:
    """Something in it is not known to be a collective, and may be one."""
    return any(type(e) is Maybe or any(map(has_maybe, parts(e))) for e in trace)


def _counts(trace: Trace) -> dict[str, tuple[float, float]]:
    """By operation, how often it runs at least and at most."""
    total: dict[str, tuple[float, float]] = {}
    may_be_gone = False
    for element in trace:
        here = _count(element)
        for key, (low, high) in here.items():
            old = total.get(key, (0, 0))
            total[key] = old[0] + (0 if may_be_gone else low), old[1] + high
        may_be_gone = may_be_gone or may_leave(element)
    return total


def _count(element: Element) -> dict[str, tuple[float, float]]:
    if isinstance(element, Op):
        return {element.key: (1, 1)}
    inside = [_counts(p) for p in parts(element)]
    if isinstance(element, Choice):
        keys = {*inside[0], *inside[1]}
        ranges = [(k, inside[0].get(k, (0, 0)), inside[1].get(k, (0, 0))) for k in keys]
        return {k: (min(a[0], b[0]), max(a[1], b[1])) for k, a, b in ranges}
    if isinstance(element, Repeat):
        return {k: (0, inf if high else 0) for k, (_, high) in inside[0].items()}
    found: dict[str, tuple[float, float]] = {}
    for counts in inside:
        for key, (low, high) in counts.items():
            old = found.get(key, (0, 0))
            found[key] = old[0] + low, old[1] + high
    return found
