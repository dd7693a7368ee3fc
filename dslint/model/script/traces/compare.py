"""Where the traces of two ranks part."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf
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
    operations,
    parts,
    rebuilt,
    resolved,
    shape,
)

_NOTHING = cst.Module([])
# Paths through choices on which the two ranks do not agree at once: beyond this nothing is said about the rest.
_MOST_FORKS = 200


class Rest(NamedTuple):
    """What a rank still has to do: one element and then the rest. ``mark``: an element, or the end of something."""

    head: Element | _End
    tail: Rest | None


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a function (``scope``), of one turn of a loop (``turn``) or of a loop (``loop``)."""

    kind: str
    final: Trace = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Two ranks do not run the same operations.

    ``op`` is an operation that side ``side`` (0 or 1) runs and the other does not; ``order``: both run the same ones in
    another order, and ``against`` is what the other side runs at that place. ``after``: the tests that decided for each
    side, the latest last. ``is_conditional``: only on some way through the other tests.
    """

    op: Op
    side: int
    order: bool
    after: tuple[tuple[Decided, ...], tuple[Decided, ...]]
    is_conditional: bool = False
    against: Op | None = None


_After = tuple[tuple[Decided, ...], tuple[Decided, ...]]


def compare(one: Trace, other: Trace) -> list[Mismatch]:
    """The operations without a partner; empty when there are none, or when it cannot be told."""
    return _Comparison().run(one, other)


class _Path(NamedTuple):
    """A way through the choices that the two ranks do not make alike.

    ``chosen``: the arm taken for each symbol; ``skipped``: by side, what the arms hold that only this side skipped.
    """

    after: _After = ((), ())
    chosen: tuple[tuple[str, bool], ...] = ()
    skipped: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())


class _Comparison:
    def __init__(self) -> None:
        self._forks = 0
        self._found: dict[tuple[int, int], Mismatch] = {}
        self._pairs: dict[tuple[int, int], tuple[Op, Op, _After]] = {}

    def run(self, one: Trace, other: Trace) -> list[Mismatch]:
        self._walk(_push(one, None), _push(other, None), _Path())
        if self._forks > _MOST_FORKS:
            return []
        if not self._found:
            self._swapped()
        return list(self._found.values())

    def _swapped(self) -> None:
        """The same operations meet, on other tensors: those of the one side in another order on the other side."""
        pairs = [(a, b, after) for a, b, after in self._pairs.values() if _works_on(a) != _works_on(b)]
        if pairs and Counter(_works_on(a) for a, _, _ in pairs) == Counter(_works_on(b) for _, b, _ in pairs):
            first, against, after = pairs[0]
            self._note(Mismatch(first, 0, True, after, against=against))

    def _walk(self, one: Rest | None, other: Rest | None, path: _Path) -> None:
        while self._forks <= _MOST_FORKS:
            left, right = _settled(one, path.after[0]), _settled(other, path.after[1])
            if left is None or right is None:
                return  # a rank failed, and the job with it
            (one, first), (other, second) = left, right
            path = path._replace(after=(first, second))
            if one is None and other is None:
                return
            if one is not None and other is not None and self._is_matched(one, other, path):
                path = path._replace(chosen=(*path.chosen, *_survived(one.head)))
                one, other = one.tail, other.tail
                continue
            if not (self._choose(one, other, path) or self._left_in_loop(one, other, path)):
                self._part(one, other, path)
            return

    def _choose(self, one: Rest | None, other: Rest | None, path: _Path) -> bool:
        """Follow both arms of a choice that one of the two makes here, or that both make unlike."""
        a, b = one.head if one else None, other.head if other else None
        if one and other and isinstance(a, Choice) and isinstance(b, Choice) and a.symbol == b.symbol:
            for arm in self._arms(a.symbol, path):
                chosen = (*path.chosen, (a.symbol, arm))
                self._walk(_taken(a, arm, one), _taken(b, arm, other), path._replace(chosen=chosen))
            return True
        if not (isinstance(a, Choice) or isinstance(b, Choice)):
            return False
        waiting = b if isinstance(a, Choice) else a
        if isinstance(waiting, Op) and any(op.call is waiting.call for _, op in _lonely(one, other, path)):
            return False
        self._one_sided(one, other, path)
        return True

    def _is_matched(self, one: Rest, other: Rest, path: _Path) -> bool:
        a, b = one.head, other.head
        if isinstance(a, Op) and isinstance(b, Op):
            if a.key == b.key:
                self._meet(a, b, path.after)
            return a.key == b.key
        if isinstance(a, Choice) and isinstance(b, Choice) and _same_element(a, b):
            self._meet(a, b, path.after)
            return True
        if isinstance(a, Repeat) and isinstance(b, Repeat) and a.symbol == b.symbol:
            if _same_element(a, b):
                self._meet(a, b, path.after)
            else:
                # Two turns: after a ``break`` of one rank the other starts its next turn alone.
                self._forks += 1
                self._walk(_unrolled(a.body, one.tail), _unrolled(b.body, other.tail), path)
            return True
        return isinstance(a, Maybe) and isinstance(b, Maybe) and a.call is b.call

    def _left_in_loop(self, one: Rest | None, other: Rest | None, path: _Path) -> bool:
        """A loop in which only one of the two may leave the function: with a turn, and without."""
        for side, rest in ((0, one), (1, other)):
            across = other if side == 0 else one
            head = rest.head if rest is not None else None
            if rest is None or not isinstance(head, Repeat) or not _may_leave(head):
                continue
            if across is not None and isinstance(across.head, Repeat) and across.head.symbol == head.symbol:
                continue
            self._forks += 1
            for way in (_unrolled(head.body, rest.tail), rest.tail):
                self._walk(*((way, across) if side == 0 else (across, way)), path)
            return True
        return False

    def _meet(self, a: Element, b: Element, after: _After) -> None:
        """Two elements of the same shape: note which operations meet."""
        if isinstance(a, Op) and isinstance(b, Op):
            if a.call is not b.call and not (a.through or b.through):
                self._pairs.setdefault((id(a.call), id(b.call)), (a, b, after))
            return
        for mine, theirs in zip(parts(a), parts(b), strict=True):
            told = ([e for e in t if shape((e,))] for t in (mine, theirs))
            for inner, other in zip(*told, strict=True):
                self._meet(inner, other, after)

    def _arms(self, symbol: str, path: _Path) -> tuple[bool, ...]:
        self._forks += 1
        return next(((arm,) for name, arm in path.chosen if name == symbol), (True, False))

    def _one_sided(self, one: Rest | None, other: Rest | None, path: _Path) -> None:
        """A choice that only one of the two makes here: both of its arms are possible."""
        side = 0 if one is not None and isinstance(one.head, Choice) else 1
        rest = one if side == 0 else other
        choice = rest.head if rest is not None else None
        if rest is None or not isinstance(choice, Choice):
            return
        if choice.inner:
            # What decides inside of the called function is not known here: it may be the counterpart, or nothing.
            skipped = list(path.skipped)
            skipped[side] |= frozenset(op.key for op in operations((choice,)))
            path = path._replace(skipped=(skipped[0], skipped[1]))
            self._walk(*((rest.tail, other) if side == 0 else (one, rest.tail)), path)
            return
        for arm in self._arms(choice.symbol, path):
            left_out = frozenset(op.key for op in operations(choice.orelse if arm else choice.then))
            skipped = list(path.skipped)
            if not choice.split:  # else the test that tells the ranks apart decides, and nothing else does
                skipped[side] |= left_out
            way = _Path(path.after, (*path.chosen, (choice.symbol, arm)), (skipped[0], skipped[1]))
            if side == 0:
                self._walk(_taken(choice, arm, rest), other, way)
            else:
                self._walk(one, _taken(choice, arm, rest), way)

    def _part(self, one: Rest | None, other: Rest | None, path: _Path) -> None:
        """Something has no partner here: say what, if it is certain."""
        rests = _elements(one, path), _elements(other, path)
        if any(_has_maybe(r) for r in rests):
            return
        lonely = _lonely(one, other, path)
        for side, op in lonely:
            if op.key not in path.skipped[1 - side]:  # else the other side may run it for a reason of its own
                self._note(Mismatch(op, side, False, path.after, bool(path.chosen)))
        if not lonely:
            self._order(rests, path.after)

    def _order(self, rests: tuple[Trace, Trace], after: _After) -> None:
        """The same operations in another order; only where nothing but operations follows."""
        rests = _differing(*rests)
        ops = [[e for e in r if type(e) is Op] for r in rests]
        if any(len(o) != len(r) for o, r in zip(ops, rests, strict=True)):
            return
        one, other = ops
        if Counter(o.key for o in one) == Counter(o.key for o in other) and one:
            self._note(Mismatch(one[0], 0, True, after, against=other[0]))

    def _note(self, mismatch: Mismatch) -> None:
        self._found.setdefault((id(mismatch.op.call), mismatch.side), mismatch)


def _works_on(op: Op) -> str:
    """The arguments of a collective as written."""
    return ", ".join(_NOTHING.code_for_node(a.value).strip() for a in op.call.args)


def _taken(choice: Choice, arm: bool, rest: Rest) -> Rest | None:
    return _push(choice.then if arm else choice.orelse, rest.tail)


def _survived(element: Element | _End) -> tuple[tuple[str, bool], ...]:
    """What is known after ``if flag: return``: who goes on has the other arm."""
    if not isinstance(element, Choice):
        return ()
    gone = [bool(arm) and type(arm[-1]) is Leave for arm in (element.then, element.orelse)]
    return ((element.symbol, gone[1]),) if gone[0] is not gone[1] else ()


def _push(trace: Trace, rest: Rest | None) -> Rest | None:
    for element in reversed(trace):
        rest = Rest(element, rest)
    return rest


def _unrolled(body: Trace, rest: Rest | None) -> Rest | None:
    """Two turns of a loop, and what follows it."""
    second = _push(body, Rest(_End("turn"), Rest(_End("loop"), rest)))
    return _push(body, Rest(_End("turn"), second))


def _settled(rest: Rest | None, after: tuple[Decided, ...]) -> tuple[Rest | None, tuple[Decided, ...]] | None:
    """Go on to the next element in which something happens; ``None`` when the process fails."""
    while rest is not None:
        head, tail = rest
        if isinstance(head, Decided):
            after = (*after, head)
            rest = tail
        elif isinstance(head, _End):
            rest = _push(head.final, tail)
        elif isinstance(head, Scope):
            rest = _push(head.body, Rest(_End("scope"), tail))
        elif isinstance(head, Protected):
            rest = _push(head.body, Rest(_End("final", head.final), tail))
        elif isinstance(head, Leave):
            if head.kind in ("crash", "lost"):
                return None
            rest = _left(head.kind, tail)
        else:
            break
    return rest, after


_ENDS = {"return": "scope", "break": "loop", "continue": "turn"}


def _left(kind: str, rest: Rest | None) -> Rest | None:
    """What follows a ``return``, ``break``, ``continue`` or ``exit``."""
    wanted = _ENDS.get(kind, "")
    while rest is not None:
        head, tail = rest
        if isinstance(head, _End):
            if head.kind == wanted:
                return tail
            if head.kind == "final" and head.final:
                return _push(head.final, Rest(Leave(kind), tail))
        rest = tail
    return None


def _lonely(one: Rest | None, other: Rest | None, path: _Path) -> list[tuple[int, Op]]:
    """The operations, each with its side, that this side certainly runs more often than the other from here on."""
    rests = _differing(_elements(one, path), _elements(other, path))
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


def _differing(one: Trace, other: Trace) -> tuple[Trace, Trace]:
    """Without what both do at the end, the same calls in the same order."""
    end = 0
    while end < min(len(one), len(other)) and _calls((one[-1 - end],)) == _calls((other[-1 - end],)):
        if not _same_element(one[-1 - end], other[-1 - end]):
            break
        end += 1
    return (one[:-end], other[:-end]) if end else (one, other)


def _calls(trace: Trace) -> list[int]:
    return [id(op.call) for op in operations(trace)]


def _same_element(a: Element, b: Element) -> bool:
    return a is b or shape((a,)) == shape((b,))


def _elements(rest: Rest | None, path: _Path) -> Trace:
    """What still comes, up to the first sure way out of everything, by the arms that this path has chosen."""
    chosen = dict(path.chosen)
    found: list[Element] = []
    while rest is not None:
        settled = _settled(rest, ())
        if settled is None or settled[0] is None:
            break
        rest = settled[0]
        head = rest.head
        if isinstance(head, Choice) and head.symbol in chosen:
            rest = _taken(head, chosen[head.symbol], rest)
            continue
        if not isinstance(head, _End):
            found.append(rebuilt(head, lambda part: resolved(part, chosen)) if chosen else head)
        rest = rest.tail
    return tuple(found)


def _has_maybe(trace: Trace) -> bool:
    return any(type(e) is Maybe or any(map(_has_maybe, parts(e))) for e in trace)


def _counts(trace: Trace) -> dict[str, tuple[float, float]]:
    """By operation, how often it runs at least and at most."""
    total: dict[str, tuple[float, float]] = {}
    may_be_gone = False
    for element in trace:
        here = _count(element)
        for key, (low, high) in here.items():
            old = total.get(key, (0, 0))
            total[key] = old[0] + (0 if may_be_gone else low), old[1] + high
        may_be_gone = may_be_gone or _may_leave(element)
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


def _may_leave(element: Element) -> bool:
    """The function may end here: what leaves a called function or a loop goes no further."""
    if isinstance(element, Leave):
        return True
    inner = (e for p in parts(element) for e in p)
    if isinstance(element, Scope):
        return any(isinstance(e, Leave) and e.kind == "end" for e in inner)
    if isinstance(element, Repeat):
        return any(_may_leave(e) and not (isinstance(e, Leave) and e.kind in ("break", "continue")) for e in inner)
    return any(map(_may_leave, inner))
