"""Where the traces of two ranks part."""

from __future__ import annotations

from dataclasses import dataclass

from dslint.model.script.traces.counting import ahead, has_maybe, is_same, lonely
from dslint.model.script.traces.elements import (
    Choice,
    Decided,
    Element,
    Maybe,
    Op,
    Repeat,
    Trace,
    operations,
    parts,
    shape,
)
from dslint.model.script.traces.path import (
    After,
    Path,
    Rest,
    is_endless,
    may_leave,
    passes_by,
    push,
    settled,
    survived,
    taken,
    unrolled,
)

# Paths through choices on which the two ranks do not agree at once: beyond this nothing is said about the rest.
_MOST_FORKS = 200


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Two ranks do not run the same operations.

    ``op`` is an operation that side ``side`` (0 or 1) runs and the other does not. ``after``: the tests that decided
    for each side, the latest last. ``is_conditional``: only on some way through the other tests.
    """

    op: Op
    side: int
    after: tuple[tuple[Decided, ...], tuple[Decided, ...]]
    is_conditional: bool = False


def compare(one: Trace, other: Trace) -> list[Mismatch]:
    """The operations without a partner; empty when there are none, or when it cannot be told."""
    return _Comparison().run(one, other)


class _Comparison:
    def __init__(self) -> None:
        self._forks = 0
        self._found: dict[tuple[int, int], Mismatch] = {}
        self._pairs: dict[tuple[int, int], tuple[Op, Op, After]] = {}

    def run(self, one: Trace, other: Trace) -> list[Mismatch]:
        self._walk(push(one, None), push(other, None), Path())
        if self._forks > _MOST_FORKS:
            return []
        return list(self._found.values())

    def _walk(self, one: Rest | None, other: Rest | None, path: Path) -> None:
        while self._forks <= _MOST_FORKS:
            left, right = settled(one, path.after[0]), settled(other, path.after[1])
            if left is None or right is None:
                return  # a rank failed, and the job with it
            (one, first), (other, second) = left, right
            path = path._replace(after=(first, second))
            if one is None and other is None:
                return
            if one is not None and passes_by(one.head, other):
                one = one.tail
                continue
            if other is not None and passes_by(other.head, one):
                other = other.tail
                continue
            if one is not None and other is not None and self._is_matched(one, other, path):
                path = path._replace(chosen=(*path.chosen, *survived(one.head)))
                one, other = one.tail, other.tail
                continue
            if not (self._choose(one, other, path) or self._left_in_loop(one, other, path)):
                self._part(one, other, path)
            return

    def _choose(self, one: Rest | None, other: Rest | None, path: Path) -> bool:
        """Follow both arms of a choice that one of the two makes here, or that both make unlike."""
        a, b = one.head if one else None, other.head if other else None
        if one and other and isinstance(a, Choice) and isinstance(b, Choice) and a.symbol == b.symbol:
            for arm in self._arms(a.symbol, path):
                chosen = (*path.chosen, (a.symbol, arm))
                self._walk(taken(a, arm, one), taken(b, arm, other), path._replace(chosen=chosen))
            return True
        if not (isinstance(a, Choice) or isinstance(b, Choice)):
            return False
        waiting = b if isinstance(a, Choice) else a
        if isinstance(waiting, Op) and any(op.call is waiting.call for _, op in lonely(one, other, path)):
            return False
        self._one_sided(one, other, path)
        return True

    def _is_matched(self, one: Rest, other: Rest, path: Path) -> bool:
        a, b = one.head, other.head
        if isinstance(a, Op) and isinstance(b, Op):
            if a.key == b.key:
                self._meet(a, b, path.after)
            return a.key == b.key
        if isinstance(a, Choice) and isinstance(b, Choice) and is_same(a, b):
            self._meet(a, b, path.after)
            return True
        if isinstance(a, Repeat) and isinstance(b, Repeat) and a.symbol == b.symbol:
            if is_same(a, b):
                self._meet(a, b, path.after)
            else:
                # Two turns: after a ``break`` of one rank the other starts its next turn alone.
                self._forks += 1
                self._walk(unrolled(a, one.tail), unrolled(b, other.tail), path)
            return True
        return isinstance(a, Maybe) and isinstance(b, Maybe) and a.call is b.call

    def _left_in_loop(self, one: Rest | None, other: Rest | None, path: Path) -> bool:
        """A loop in which only one of the two may leave the function; nobody writes one that never turns."""
        for side, rest in ((0, one), (1, other)):
            across = other if side == 0 else one
            head = rest.head if rest is not None else None
            if rest is None or not isinstance(head, Repeat) or not may_leave(head):
                continue
            if across is not None and isinstance(across.head, Repeat) and across.head.symbol == head.symbol:
                continue
            self._forks += 1
            way = unrolled(head, rest.tail, alone=True)
            self._walk(*((way, across) if side == 0 else (across, way)), path)
            return True
        return False

    def _meet(self, a: Element, b: Element, after: After) -> None:
        """Two elements of the same shape: note which operations meet."""
        if isinstance(a, Op) and isinstance(b, Op):
            if a.call is not b.call and not (a.through or b.through):
                self._pairs.setdefault((id(a.call), id(b.call)), (a, b, after))
            return
        for mine, theirs in zip(parts(a), parts(b), strict=True):
            told = ([e for e in t if shape((e,))] for t in (mine, theirs))
            for inner, other in zip(*told, strict=True):
                self._meet(inner, other, after)

    def _arms(self, symbol: str, path: Path) -> tuple[bool, ...]:
        self._forks += 1
        return next(((arm,) for name, arm in path.chosen if name == symbol), (True, False))

    def _one_sided(self, one: Rest | None, other: Rest | None, path: Path) -> None:
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
            way = Path(path.after, (*path.chosen, (choice.symbol, arm)), (skipped[0], skipped[1]))
            if side == 0:
                self._walk(taken(choice, arm, rest), other, way)
            else:
                self._walk(one, taken(choice, arm, rest), way)

    def _part(self, one: Rest | None, other: Rest | None, path: Path) -> None:
        """Something has no partner here: say what, if it is certain."""
        rests = ahead(one, path), ahead(other, path)
        if any(has_maybe(r) for r in rests) or _is_served(*rests):
            return
        alone = lonely(one, other, path)
        for side, op in alone:
            if op.key not in path.skipped[1 - side]:  # else the other side may run it for a reason of its own
                lone, after = (op, path.after) if path.chosen else self._shifted(op, side, path.after)
                self._note(Mismatch(lone, side, after, bool(path.chosen)))

    def _shifted(self, op: Op, side: int, after: After) -> tuple[Op, After]:
        """Of a run of one operation with one too many: the call that the other side does not reach.

        They meet in turn, so the last one is left over, though both sides reach its call.
        """
        met = {id((b, a)[side].call): ((a, b)[side], reached) for a, b, reached in self._pairs.values()}
        while id(op.call) in met:
            op, after = met.pop(id(op.call))
        return op, after

    def _note(self, mismatch: Mismatch) -> None:
        self._found.setdefault((id(mismatch.op.call), mismatch.side), mismatch)


def _is_served(one: Trace, other: Trace) -> bool:
    """One side works in a loop without an end that the other does not enter.

    The other side sends it its work, by calls of the same operations that nobody sees here: callbacks of a server.
    """
    endless = [{e.symbol for e in _loops(t) if is_endless(e) and operations(e.body)} for t in (one, other)]
    return endless[0] != endless[1]


def _loops(trace: Trace) -> list[Repeat]:
    """The loops of the function and of those that it calls."""
    inner = [loop for e in trace for part in parts(e) for loop in _loops(part)]
    return [*inner, *(e for e in trace if isinstance(e, Repeat))]
