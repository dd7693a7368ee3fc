"""Where two ranks part: one makes a call that waits for the other, and the other never comes to it.

The tree of events is read for two ranks at the same time. Tests that are the same on all ranks send both the same way;
a test that may send them different ways is followed on both sides, until both have done the same (they have met again)
or until no block is left in which they could, and the calls that wait are compared.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.python import formulas
from dslint.python.events import Alt, Call, Context, Event, Exit, Loop, Node, Seq, Try
from dslint.python.heap import RECEIVED
from dslint.python.machine import Machine
from dslint.python.queries.steps import BREAK, CONTINUE, END, LOST, RAISE, RETURN, Step, Steps, Way, is_endless, tags_of
from dslint.python.queries.waits import Waits
from dslint.python.values import Unknown
from dslint.python.varies import CLOCK, DATA, DIVERGENT, RANKED
from dslint.python.varies import LOST as LOST_BIT


@dataclass(slots=True)
class Parting:
    """Two ranks that part.

    `test` sends them different ways for the causes in `varies`; `event` waits, and ranks that go the other way do not
    come to it. `via` is the call in the function of the test that leads to the event. `on_true` says that the ranks
    for which the test holds make the call; `exit` is how the others leave. `by_lanes`: ranks are told apart by their
    number for certain. `path` are the calls that lead to the test. `order`: both make the same calls, `against` is
    where the others are. `times` is how often the two sides make a call of this kind.
    """

    test: Alt | Loop
    event: Event
    varies: int
    on_true: bool
    exit: str
    by_lanes: bool
    is_loop: bool = False
    path: tuple[Call, ...] = ()
    via: Call | None = None
    order: bool = False
    against: Step | None = None
    times: tuple[int, int] = (1, 0)
    lanes: tuple[int, int] = (0, 0)
    chain: tuple[_Block, ...] = ()

    @property
    def is_certain(self) -> bool:
        """Return whether the ranks part for certain, by their numbers or by data, clocks or chance of their own."""
        # Random numbers mostly come from one seed; how many items a dictionary has mostly is the same everywhere.
        if self.is_loop:
            own = DATA | CLOCK if isinstance(self.test.node, ast.While) else 0
            return bool(self.varies & (RANKED | own))
        # What only some ranks know of their host is each rank's own; files are often shared.
        origin = self.test.test.origin if isinstance(self.test, Alt) and self.test.test is not None else None
        is_assigned = origin is not None and isinstance(origin[1], ast.If | ast.IfExp)
        is_lone = bool(self.varies & RANKED) and is_assigned
        return self.by_lanes or is_lone or bool(self.varies & (DATA | CLOCK))


@dataclass(slots=True)
class _Block:
    """What surrounds a place: the rest of its block, or the loop, call, context or `finally` around the block."""

    kind: str  # "rest" | "loop" | "call" | "context" | "final"
    items: list[Node] = field(default_factory=list)
    node: Node | None = None
    before: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Partings:
    """Finds every place in a tree where two ranks part before a call that waits."""

    machine: Machine
    waits: Waits
    found: list[Parting] = field(default_factory=list)
    _seen: set[tuple[int, int]] = field(default_factory=set)
    _settled: set[int] = field(default_factory=set)
    _steps: Steps | None = None

    @property
    def steps(self) -> Steps:
        """Return the reader of blocks."""
        if self._steps is None:
            self._steps = Steps(self.machine, self.waits)
        return self._steps

    def of(self, tree: Seq) -> list[Parting]:
        """Return the partings of a tree, each test once."""
        self.found, self._seen, self._settled = [], set(), set()
        self._walk(tree.items, ())
        return self.found

    # -- the walk -----------------------------------------------------------------------------------------------

    def _walk(self, items: list[Node], chain: tuple[_Block, ...]) -> None:
        for at, item in enumerate(items):
            here = (*chain, _Block("rest", items[at + 1 :], None, items[:at]))
            if isinstance(item, Seq):
                self._walk(item.items, here)
            elif isinstance(item, Alt):
                self._alternative(item, here)
            elif isinstance(item, Loop):
                self._loop(item, here)
            elif isinstance(item, Call):
                self._call(item, here)
            elif isinstance(item, Context):
                self._walk(item.body.items, (*here, _Block("context", [], item)))
            elif isinstance(item, Try):
                self._try(item, here)

    def _call(self, item: Call, chain: tuple[_Block, ...]) -> None:
        # The same function at the same place of the same caller: a loop around was laid out once already.
        key = (id(item.body), id(item))
        if key not in self._seen:
            self._seen.add(key)
            self._walk(item.body.items, (*chain, _Block("call", [], item)))

    def _try(self, item: Try, chain: tuple[_Block, ...]) -> None:
        final = (*chain, _Block("final", item.final.items))
        self._walk(item.body.items, (*final, _Block("rest", item.orelse.items)))
        for part in (*item.handlers, item.orelse):
            self._walk(part.items, final)
        self._walk(item.final.items, chain)

    def _alternative(self, alt: Alt, chain: tuple[_Block, ...]) -> None:
        pair = next(self._pairs(alt), None) if id(alt) not in self._settled else None
        if pair is not None:
            self.steps.taken.clear()
            parting = self._compared(alt, chain, *pair)
            if parting is not None:
                self.found.append(parting)
                if parting.is_certain:
                    return
            # What the ways do at these tests later on makes up for what they did here.
            self._settled |= {at for at, sides in self.steps.taken.items() if len(sides) > 1}
        self._walk(alt.then.items, chain)
        self._walk(alt.orelse.items, chain)

    def _pairs(self, alt: Alt) -> Iterator[tuple[Way, Way, bool]]:
        """Yield a lane that takes the first way, one of its world that takes the other, and whether for certain."""
        formula = formulas.of_test(alt.test)
        worlds = self.machine.worlds
        for first, second, by_lanes in self._lanes(alt):
            one = formulas.facts(worlds, formula, True, first, {})
            shared = {key: value for key, value in one.items() if not formulas.is_own(key)}
            if not by_lanes and not formulas.is_own(formula):
                shared = {}
            other = formulas.facts(worlds, formula, False, second, shared)
            if any(other.get(key, value) is not value for key, value in shared.items()):
                continue
            masks = formulas.lanes(worlds, formula, one)[0], formulas.lanes(worlds, formula, shared)[1]
            if formula is not None and by_lanes and not (masks[0] >> first & 1 and masks[1] >> second & 1):
                continue
            extra = (
                {key: value for key, value in other.items() if not formulas.is_own(key)} if shared or by_lanes else {}
            )
            yield Way(first, {**extra, **one}), Way(second, {**shared, **other}), by_lanes

    def _lanes(self, alt: Alt) -> Iterator[tuple[int, int, bool]]:
        then_only, else_only = alt.then_lanes & ~alt.else_lanes, alt.else_lanes & ~alt.then_lanes
        both = alt.then_lanes & alt.else_lanes
        for group in self.machine.worlds.groups:
            then = [lane for lane in group if then_only >> lane & 1]
            orelse = [lane for lane in group if else_only >> lane & 1]
            open_ = [lane for lane in group if both >> lane & 1]
            if then and orelse:
                yield then[0], orelse[0], True
            elif open_ and (then or orelse):
                yield (then[0], open_[0], True) if then else (open_[0], orelse[0], True)
            elif len(open_) > 1 and alt.varies & DIVERGENT and not alt.varies & LOST_BIT:
                yield open_[0], open_[-1], False
                yield open_[-1], open_[0], False

    def _loop(self, loop: Loop, chain: tuple[_Block, ...]) -> None:
        if loop.varies & DIVERGENT and not loop.varies & LOST_BIT and not self._is_joined(chain):
            lane = self.machine.worlds.groups[0][0]
            steps, _ = self.steps.of(loop.body.items, Way(lane, {}), self._is_local(chain))
            first = next((step for step in steps if step.event is not None), None)
            if first is not None and first.event is not None and not is_endless(loop):
                found = Parting(loop, first.event, loop.varies, True, "", False, True, _calls(chain), first.via)
                found.chain = chain
                self.found.append(found)
        self._walk(loop.body.items, (*chain, _Block("loop", [], loop)))
        self._walk(loop.orelse.items, chain)

    def _is_joined(self, chain: tuple[_Block, ...]) -> bool:
        """Return whether a context around makes ranks that run out of data take part (`Join`)."""
        return any(isinstance(block.node, Context) and "join" in tags_of(self.machine, block.node) for block in chain)

    def _is_local(self, chain: tuple[_Block, ...]) -> bool:
        return any(isinstance(b.node, Context) and "no-sync" in tags_of(self.machine, b.node) for b in chain)

    # -- two ways -----------------------------------------------------------------------------------------------

    def _compared(self, alt: Alt, chain: tuple[_Block, ...], one: Way, other: Way, by_lanes: bool) -> Parting | None:
        """Compare both ways of a test up to where they meet again."""
        local = self._is_local(chain)
        passed = _passed(chain)
        if any(way.known.get(key, holds) is not holds for key, holds in passed.items() for way in (one, other)):
            return None
        one.known, other.known = {**passed, **one.known}, {**passed, **other.known}
        self.steps.extend(one, alt.then.items, local)
        self.steps.extend(other, alt.orelse.items, local)
        for block in reversed(chain):
            if one.end == other.end and one.keys == other.keys:
                return self._swapped(alt, chain, (one, other), by_lanes)
            if RAISE in (one.end, other.end):
                return None
            if block.kind == "rest":
                for way in (one, other):
                    self.steps.extend(way, block.items, local)
            elif block.kind == "final":
                self._finally(block, (one, other), local)
            elif block.kind == "loop":
                assert isinstance(block.node, Loop)
                found = self._at_loop(alt, chain, (one, other), block.node, by_lanes)
                if found is not None:
                    return found
            elif block.kind == "call":
                for way in (one, other):
                    way.end = END if way.end == RETURN else way.end
        if RAISE in (one.end, other.end):
            return None
        return self._parting(alt, chain, (one, other), by_lanes)

    def _finally(self, block: _Block, ways: tuple[Way, Way], local: bool) -> None:
        for way in ways:
            steps, end = self.steps.of(block.items, way, local)
            way.steps += steps
            way.end = end if end != END else way.end

    def _at_loop(
        self, alt: Alt, chain: tuple[_Block, ...], ways: tuple[Way, Way], loop: Loop, by_lanes: bool
    ) -> Parting | None:
        """Meet at the end of the body of a loop: who breaks or returns makes no further turn."""
        found = self._parting(alt, chain, ways, by_lanes)
        if found is not None:
            return found
        for way in ways:
            way.end = END if way.end == CONTINUE else way.end
        if ways[0].end != ways[1].end and END in (ways[0].end, ways[1].end):
            stays = 0 if ways[0].end == END else 1
            steps, _ = self.steps.of(loop.body.items, ways[stays], self._is_local(chain))
            step = next((step for step in steps if step.event is not None), None)
            if step is not None and LOST not in steps[: steps.index(step)]:
                return self._made(alt, chain, ways, step, stays, by_lanes)
        for way in ways:
            way.end = END if way.end == BREAK else way.end
        return None

    def _parting(self, alt: Alt, chain: tuple[_Block, ...], ways: tuple[Way, Way], by_lanes: bool) -> Parting | None:
        difference = _difference(ways[0].steps, ways[1].steps)
        if difference is None:
            return None
        side, step, against = difference
        found = self._made(alt, chain, ways, step, side, by_lanes)
        if found is not None and against is not None:
            found.order, found.against = True, against
        return found

    def _swapped(self, alt: Alt, chain: tuple[_Block, ...], ways: tuple[Way, Way], by_lanes: bool) -> Parting | None:
        """Both make calls of the same kinds: with other roots, or the same calls in another order?"""
        pairs = [
            p
            for p in zip(ways[0].steps, ways[1].steps, strict=True)
            if p[0].event and p[1].event and p[0].event is not p[1].event
        ]
        for one, other in pairs:
            if self.waits.roots(one.event, other.event):
                found = self._made(alt, chain, ways, one, 0, by_lanes)
                if found is not None:
                    found.order, found.against = True, other
                return found
        texts = [[self.waits.text(step.event) for step in side] for side in zip(*pairs, strict=True)]
        if not pairs or texts[0] == texts[1] or sorted(texts[0]) != sorted(texts[1]):
            return None
        at = next(i for i, (a, b) in enumerate(zip(*texts, strict=True)) if a != b)
        found = self._made(alt, chain, ways, pairs[at][0], 0, by_lanes)
        if found is not None:
            found.order, found.against = True, pairs[at][1]
        return found

    def _made(
        self, alt: Alt, chain: tuple[_Block, ...], ways: tuple[Way, Way], step: Step, side: int, by_lanes: bool
    ) -> Parting | None:
        if step.event is None or (isinstance(step.key, tuple) and _leaves_when_told(chain)):
            return None
        left = ways[1 - side].left
        found = Parting(alt, step.event, alt.varies or RANKED, side == 0, left, by_lanes, False, _calls(chain))
        found.via, found.chain, found.lanes = step.via, chain, (ways[side].lane, ways[1 - side].lane)
        found.times = (ways[side].keys.count(step.key), ways[1 - side].keys.count(step.key))
        return found


def _difference(first: list[Step], second: list[Step]) -> tuple[int, Step, Step | None] | None:
    """Return the side with a call that the other lacks, that call, and the other's where the order differs."""
    at = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a.key != b.key), min(len(first), len(second))
    )
    a, b = first[at:], second[at:]
    if not a and not b:
        return None
    is_open = any(step.key == LOST.key for step in (*first, *second))
    if is_open and (not a or not b or LOST.key in (a[0].key, b[0].key) or any(s.key == LOST.key for s in first[:at])):
        return None
    if not is_open:
        while a and b and a[-1].key == b[-1].key:
            a, b = a[:-1], b[:-1]
    if not a or not b:
        side, rest = (0, a) if a else (1, b)
        step = next((step for step in rest if step.event is not None), None)
        return (side, step, None) if step is not None else None
    counts = Counter(s.key for s in a), Counter(s.key for s in b)
    if not is_open and counts[0] == counts[1]:
        # What stands behind an unknown test may pair up with what the others do before it.
        return None if any(isinstance(step.key, tuple) for step in (*a, *b)) else (0, a[0], b[0])
    for side, steps in ((0, a), (1, b)):
        more = counts[side] - counts[1 - side]
        step = next((s for s in steps if s.key in more and s.event is not None), None)
        if step is not None:
            return side, step, None
    return None


def _passed(chain: tuple[_Block, ...]) -> dict[object, bool]:
    """Return the tests that are decided where a block goes on after them: the other side has left."""
    found: dict[object, bool] = {}
    for block in chain:
        for item in block.before:
            formula = formulas.of_test(item.test) if isinstance(item, Alt) else None
            if not isinstance(item, Alt) or formula is None or item.varies & DIVERGENT:
                continue
            for side, holds in ((item.then, False), (item.orelse, True)):
                if _leaves(side):
                    found.update(formulas.implied(formula, holds))
    return found


def _leaves(side: Seq) -> bool:
    """Return whether a block is left at its end for certain."""
    last = side.items[-1] if side.items else None
    if isinstance(last, Alt):
        return all(
            _leaves(part) for part, lanes in ((last.then, last.then_lanes), (last.orelse, last.else_lanes)) if lanes
        )
    return isinstance(last, Exit)


def _leaves_when_told(chain: tuple[_Block, ...]) -> bool:
    """Return whether a flag that all ranks were told ends the block before: it may answer later tests as well."""
    for item in (item for block in chain for item in block.before):
        if (
            isinstance(item, Alt)
            and item.test is not None
            and any(isinstance(atom, Unknown) and atom.reason == RECEIVED for atom in item.test.atoms)
        ):
            return any(isinstance(side.items[-1], Exit) for side in (item.then, item.orelse) if side.items)
    return False


def _calls(chain: tuple[_Block, ...]) -> tuple[Call, ...]:
    return tuple(block.node for block in chain if isinstance(block.node, Call))
