"""Is what a rank did a word of the event tree? All positions in the trace where the tree may be are followed at once.

A set of positions is an integer whose bit `p` says that the first `p` events of the trace are explained.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dslint.python import events as tree
from dslint.python.events import Alt, Call, Context, Event, Exit, Loop, Lost, Node, Seq, Try

# Whether an event of the tree is one of the trace, and whether an event of the tree is in the alphabet at all.
Same = Callable[[Event, Any], bool]
Counts = Callable[[Event], bool]


@dataclass(frozen=True)
class Ways:
    """Positions at which a node may be left, for each kind of leaving, and all that were passed inside (`seen`)."""

    normal: int = 0
    returned: int = 0
    broken: int = 0
    continued: int = 0
    raised: int = 0
    seen: int = 0

    def __or__(self, other: Ways) -> Ways:
        return Ways(
            self.normal | other.normal,
            self.returned | other.returned,
            self.broken | other.broken,
            self.continued | other.continued,
            self.raised | other.raised,
            self.seen | other.seen,
        )


_FIELD = {tree.RETURN: "returned", tree.BREAK: "broken", tree.CONTINUE: "continued", tree.RAISE: "raised"}


@dataclass(frozen=True)
class Answer:
    """Whether the trace is a word, else how many events are explained. `lost`: only a `Lost` node explains it."""

    accepted: bool
    explained: int
    lost: bool = False


def is_word(
    root: Seq,
    trace: Sequence[Any],
    same: Same,
    *,
    cut: bool = False,
    raised: bool = False,
    counts: Counts | None = None,
    lane: int | None = None,
) -> Answer:
    """Whether `trace` is a word of `root` (`cut`: a prefix of one). `raised`: the program ended by exit or exception.

    `lane` is the number of the simulated rank whose branches may be taken; None takes the branches of all.
    """
    answer = _Reader(trace, same, counts, lane, trust_lost=True).answer(root, cut=cut, raised=raised)
    if not answer.accepted:
        return answer
    strict = _Reader(trace, same, counts, lane, trust_lost=False).answer(root, cut=cut, raised=raised)
    return replace(answer, lost=not strict.accepted)


class _Reader:
    def __init__(
        self, trace: Sequence[Any], same: Same, counts: Counts | None, lane: int | None, *, trust_lost: bool
    ) -> None:
        self._trace, self._same, self._counts, self._lane = trace, same, counts, lane
        self._all = (1 << (len(trace) + 1)) - 1
        self._trust_lost = trust_lost
        self._masks: dict[int, int | None] = {}
        self._known: dict[tuple[int, int], Ways] = {}
        self._asked: dict[int, int] = {}

    def answer(self, root: Seq, *, cut: bool, raised: bool) -> Answer:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, 20_000))
        try:
            ways = self.ways(root, 1)
        finally:
            sys.setrecursionlimit(before)
        ends = ways.seen if cut else ways.normal | ways.returned | (ways.raised if raised else 0)
        return Answer(bool(ends >> len(self._trace) & 1), (ways.seen | 1).bit_length() - 1)

    def ways(self, node: Node, start: int) -> Ways:
        """How `node` may be passed from the positions `start`. Each node is worked out for few sets of positions:
        after as many as the trace is long, position by position."""
        if not start:
            return Ways()
        key = (id(node), start)
        found = self._known.get(key)
        if found is None:
            asked = self._asked[id(node)] = self._asked.get(id(node), 0) + 1
            if asked > len(self._trace) + 2 and start & (start - 1):
                found = Ways()
                for bit in _bits(start):
                    found |= self.ways(node, bit)
            else:
                found = _READ[type(node)](self, node, start)
            self._known[key] = found
        return found

    def event(self, node: Event, start: int) -> Ways:
        if self._lane is not None and not node.lanes >> self._lane & 1:
            return Ways(seen=start)
        mask = self._mask(node)
        after = start if mask is None else (start & mask) << 1
        if node.may:
            after |= start
        return Ways(normal=after, seen=start | after)

    def _mask(self, node: Event) -> int | None:
        """Positions whose next event is this one; None if such events are not recorded."""
        if id(node) not in self._masks:
            if self._counts is not None and not self._counts(node):
                self._masks[id(node)] = None
            else:
                self._masks[id(node)] = sum(1 << p for p, done in enumerate(self._trace) if self._same(node, done))
        return self._masks[id(node)]

    def exit(self, node: Exit, start: int) -> Ways:
        return replace(Ways(seen=start), **{_FIELD[node.kind]: start})

    def lost(self, node: Lost, start: int) -> Ways:
        """Anything may happen: what follows is explained from any later position, however control goes on."""
        if not self._trust_lost:
            return Ways(normal=start, seen=start)
        later = self._all & ~((start & -start) - 1)
        return Ways(later, later, later, later, later, later)

    def seq(self, node: Seq, start: int) -> Ways:
        found, here = Ways(seen=start), start
        for item in node.items:
            if not here:
                break
            step = self.ways(item, here)
            here = step.normal
            found |= replace(step, normal=0)
        return replace(found, normal=here)

    def alt(self, node: Alt, start: int) -> Ways:
        lane = self._lane
        found = Ways(seen=start)
        if lane is None or node.then_lanes >> lane & 1:
            found |= self.ways(node.then, start)
        if lane is None or node.else_lanes >> lane & 1:
            found |= self.ways(node.orelse, start)
        return found

    def loop(self, node: Loop, start: int) -> Ways:
        found, done, pending = Ways(seen=start), 0, start
        ends = 0 if node.at_least_once else start
        broken = 0
        while pending:
            step = self.ways(node.body, pending)
            done |= pending
            again = step.normal | step.continued
            ends |= again
            broken |= step.broken
            found |= replace(step, normal=0, continued=0, broken=0)
            pending = again & ~done
        found |= self.ways(node.orelse, ends)
        return replace(found, normal=found.normal | broken)

    def call(self, node: Call, start: int) -> Ways:
        inside = self.ways(node.body, start)
        return Ways(normal=inside.normal | inside.returned, raised=inside.raised, seen=inside.seen)

    def context(self, node: Context, start: int) -> Ways:
        return self.ways(node.body, start)

    def attempt(self, node: Try, start: int) -> Ways:
        body = self.ways(node.body, start)
        found = replace(body, normal=0) | self.ways(node.orelse, body.normal)
        for handler in node.handlers:
            found |= self.ways(handler, body.seen)
        if not node.final.items:
            return found
        # An exception may be on its way from any place.
        found = replace(found, raised=found.raised | found.seen)
        closed = Ways(seen=found.seen)
        for name in ("normal", "returned", "broken", "continued", "raised"):
            step = self.ways(node.final, getattr(found, name))
            closed |= replace(step, normal=0)
            closed = replace(closed, **{name: getattr(closed, name) | step.normal})
        return closed


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        found.append(mask & -mask)
        mask &= mask - 1
    return found


_READ: dict[type, Callable[[_Reader, Any, int], Ways]] = {
    Event: _Reader.event,
    Exit: _Reader.exit,
    Lost: _Reader.lost,
    Seq: _Reader.seq,
    Alt: _Reader.alt,
    Loop: _Reader.loop,
    Call: _Reader.call,
    Try: _Reader.attempt,
    Context: _Reader.context,
}
