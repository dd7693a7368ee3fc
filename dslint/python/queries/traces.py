"""Where two ranks part: one makes a call that waits for the other, and the other never comes to it.

The tree of events is read for two ranks at the same time. Tests that are the same on all ranks send both the same way;
a test that may send them different ways is followed on both sides, until both have done the same (they have met again)
or until no block is left in which they could, and the calls that wait are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, product

from dslint.python import formulas
from dslint.python.events import Alt, Call, Context, Loop, Node, Seq, Try, walk
from dslint.python.jobtests import SEVERAL
from dslint.python.machine import Machine
from dslint.python.queries.differences import calls_of, difference, leaves_when_told, passed_tests
from dslint.python.queries.parting import Block, Parting
from dslint.python.queries.steps import (
    BREAK,
    CONTINUE,
    END,
    EXIT,
    LOST,
    RAISE,
    RETURN,
    Step,
    Steps,
    Way,
    is_endless,
    tags_of,
)
from dslint.python.queries.waits import Waits
from dslint.python.varies import DIVERGENT, OWN, RANKED, WORLD
from dslint.python.varies import LOST as LOST_BIT

# So many pairs of ranks are compared at a test, and so many tests that both depend on are answered in each way.
_MAX_PAIRS = 8
_MAX_OPEN = 3
# A test of whether there are several processes: there are.
_ASKS_PROCESSES = re.compile(r"(?i)distributed|initialized|ddp|parallel|world|n_?gpu|" + SEVERAL)


@dataclass(slots=True)
class Partings:
    """Finds every place in a tree where two ranks part before a call that waits."""

    machine: Machine
    waits: Waits
    found: list[Parting] = field(default_factory=list)
    _seen: set[tuple[int, int]] = field(default_factory=set)
    _settled: set[int] = field(default_factory=set)
    _steps: Steps | None = None
    # Whether the two ways that are compared have ever made other calls than each other.
    _differs: bool = False

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

    def _walk(self, items: list[Node], chain: tuple[Block, ...]) -> None:
        for at, item in enumerate(items):
            here = (*chain, Block("rest", items[at + 1 :], None, items[:at]))
            if isinstance(item, Seq):
                self._walk(item.items, here)
            elif isinstance(item, Alt):
                self._alternative(item, here)
            elif isinstance(item, Loop):
                self._loop(item, here)
            elif isinstance(item, Call):
                self._call(item, here)
            elif isinstance(item, Context):
                self._walk(item.body.items, (*here, Block("context", [], item)))
            elif isinstance(item, Try):
                self._try(item, here)

    def _call(self, item: Call, chain: tuple[Block, ...]) -> None:
        # The same function at the same place of the same caller: a loop around was laid out once already.
        key = (id(item.body), id(item))
        if key not in self._seen:
            self._seen.add(key)
            self._walk(item.body.items, (*chain, Block("call", [], item)))

    def _try(self, item: Try, chain: tuple[Block, ...]) -> None:
        final = (*chain, Block("final", item.final.items))
        self._walk(item.body.items, (*final, Block("rest", item.orelse.items)))
        for part in (*item.handlers, item.orelse):
            self._walk(part.items, final)
        self._walk(item.final.items, chain)

    def _alternative(self, alt: Alt, chain: tuple[Block, ...]) -> None:
        pairs = list(islice(self._pairs(alt), _MAX_PAIRS)) if id(alt) not in self._settled else []
        self.steps.taken.clear()
        parting = next(filter(None, (self._tried(alt, chain, *pair) for pair in pairs)), None)
        if parting is not None:
            self.found.append(self._by_guard(parting))
            if parting.is_certain:
                return
        else:
            self._settle(alt, is_ranked=any(by_lanes for *_, by_lanes in pairs) or not alt.varies & OWN)
        for arm in (alt.then, alt.orelse):
            self._walk(arm.items, (*chain, Block("arm", arm.items, alt)))

    def _by_guard(self, parting: Parting) -> Parting:
        """Say that the number of the rank decides where a test that only some ranks come to ends a loop or function."""
        if parting.by_lanes or not parting.is_alone or parting.exit not in (BREAK, RETURN, EXIT):
            return parting
        for block in reversed(parting.chain):
            guard = block.node
            if isinstance(guard, Call):
                return parting
            if isinstance(guard, Alt) and not guard.varies & OWN and any(certain for *_, certain in self._lanes(guard)):
                on_true = block.items is guard.orelse.items
                return replace(
                    parting,
                    test=guard,
                    varies=guard.varies or RANKED,
                    on_true=on_true,
                    by_lanes=True,
                    inner=parting.test,
                )
        return parting

    def _settle(self, alt: Alt, *, is_ranked: bool) -> None:
        """What the ways do at these tests later on makes up for what they did here.

        What a rank decides by data of its own makes up for nothing that its number decides. A test on one side of
        this one comes too early for that.
        """
        inside = {id(node) for node in walk(alt)} if self.steps.taken else set()
        for at, (later, sides) in self.steps.taken.items():
            is_open = is_ranked or not any(certain for *_, certain in self._lanes(later))
            is_open = is_open and not (later.varies & RANKED and later.varies & OWN)
            if len(sides) > 1 and is_open and at not in inside:
                self._settled.add(at)

    def _tried(self, alt: Alt, chain: tuple[Block, ...], one: Way, other: Way, by_lanes: bool) -> Parting | None:
        """Compare two ways; where nothing shows, once more for each answer to the tests on which they depend."""
        self.steps.open.clear()
        taken = dict(self.steps.taken)
        known = one.known, other.known
        found = self._compared(alt, chain, one, other, by_lanes)
        if found is not None:
            return found
        # A flag that all ranks were told may hold the answer to any later test.
        atoms = list(self.steps.open)[:_MAX_OPEN] if not leaves_when_told(chain) else []
        if atoms and len(self.steps.open) <= _MAX_OPEN:
            self.steps.taken = taken
        for values in product((True, False), repeat=len(atoms)) if atoms else ():
            answers = dict(zip(atoms, values, strict=True))
            if any(not holds and _ASKS_PROCESSES.search(str(atom)) for atom, holds in answers.items()):
                continue
            if any(way.get(atom, holds) is not holds for way in known for atom, holds in answers.items()):
                continue
            first, second = (Way(way.lane, {**answers, **k}) for way, k in zip((one, other), known, strict=True))
            found = self._compared(alt, chain, first, second, by_lanes)
            if found is not None:
                found.sometimes = True
                return found
        return None

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
                more = ((then[0], orelse[-1]), (then[-1], orelse[0]))
                pairs = [(then[0], orelse[0]), *(pair for pair in more if self._are_together(*pair))]
                for first, second in dict.fromkeys(pairs):
                    yield first, second, True
            elif open_ and (then or orelse):
                yield (then[0], open_[0], True) if then else (open_[0], orelse[0], True)
            elif open_ and len(group) > 1 and alt.varies & DIVERGENT and not alt.varies & LOST_BIT:
                # Where one rank comes alone, it decides between what the others do and what they do not.
                yield open_[0], open_[-1], False
                if len(open_) > 1:
                    yield open_[-1], open_[0], False

    def _are_together(self, first: int, second: int) -> bool:
        """Return whether two lanes are on one machine: a job may never have a second one."""
        worlds = self.machine.worlds
        return worlds.stated or worlds.lanes[first][2] == worlds.lanes[second][2]

    def _loop(self, loop: Loop, chain: tuple[Block, ...]) -> None:
        if loop.varies & DIVERGENT and not loop.varies & LOST_BIT and not self._is_joined(chain):
            lane = self.machine.worlds.groups[0][0]
            steps, _ = self.steps.of(loop.body.items, Way(lane, {}), self._is_local(chain))
            first = next((step for step in steps if step.event is not None), None)
            batched = self._batched(loop, lane, chain) if first is None else None
            first = first or batched
            if first is not None and first.event is not None and not is_endless(loop):
                found = Parting(loop, first.event, loop.varies, True, "", False, True, calls_of(chain), first.via)
                found.chain, found.in_batches = chain, batched is not None
                self.found.append(found)
        self._walk(loop.body.items, (*chain, Block("loop", [], loop)))
        self._walk(loop.orelse.items, chain)

    def _batched(self, loop: Loop, lane: int, chain: tuple[Block, ...]) -> Step | None:
        """Return the first wait of a test in a loop which only the items decide that the rank has met so far.

        `if len(batch) == size: yield batch`: ranks with other items make other numbers of batches.
        """
        for alt in loop.body.items:
            is_own = isinstance(alt, Alt) and bool(alt.varies & RANKED) and not alt.varies & ~(RANKED | WORLD)
            if not isinstance(alt, Alt) or not is_own or alt.then_lanes != alt.else_lanes:
                continue
            steps, _ = self.steps.of(alt.then.items, Way(lane, {}), self._is_local(chain))
            first = next((step for step in steps if step.event is not None), None)
            if first is not None:
                return first
        return None

    def _is_joined(self, chain: tuple[Block, ...]) -> bool:
        """Return whether a context around makes ranks that run out of data take part (`Join`)."""
        return any(isinstance(block.node, Context) and "join" in tags_of(self.machine, block.node) for block in chain)

    def _is_local(self, chain: tuple[Block, ...]) -> bool:
        return any(isinstance(b.node, Context) and "no-sync" in tags_of(self.machine, b.node) for b in chain)

    # -- two ways -----------------------------------------------------------------------------------------------

    def _compared(self, alt: Alt, chain: tuple[Block, ...], one: Way, other: Way, by_lanes: bool) -> Parting | None:
        """Compare both ways of a test up to where they meet again."""
        taken = dict(self.steps.taken)
        self._differs = False
        found = self._followed(alt, chain, one, other, by_lanes)
        if found is None and not self._differs and one.keys == other.keys:
            self.steps.taken = taken  # there was nothing to make up for
        return found

    def _have_met(self, one: Way, other: Way) -> bool:
        """Return whether two ways have made the same calls and go on at the same place."""
        is_same = one.keys == other.keys
        self._differs = self._differs or not is_same
        return is_same and one.end == other.end

    def _followed(self, alt: Alt, chain: tuple[Block, ...], one: Way, other: Way, by_lanes: bool) -> Parting | None:
        local = self._is_local(chain)
        passed = passed_tests(chain)
        if any(way.known.get(key, holds) is not holds for key, holds in passed.items() for way in (one, other)):
            return None
        one.known, other.known = {**passed, **one.known}, {**passed, **other.known}
        self.steps.extend(one, alt.then.items, local)
        self.steps.extend(other, alt.orelse.items, local)
        for block in reversed(chain):
            if self._have_met(one, other):
                return self._swapped(alt, chain, (one, other), by_lanes)
            if RAISE in (one.end, other.end):
                return None
            if block.kind == "rest":
                for item in block.items:
                    for way in (one, other):
                        self.steps.extend(way, [item], local)
                    if self._have_met(one, other):
                        return self._swapped(alt, chain, (one, other), by_lanes)
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

    def _finally(self, block: Block, ways: tuple[Way, Way], local: bool) -> None:
        for way in ways:
            steps, end = self.steps.of(block.items, way, local)
            way.steps += steps
            way.end = end if end != END else way.end

    def _at_loop(
        self, alt: Alt, chain: tuple[Block, ...], ways: tuple[Way, Way], loop: Loop, by_lanes: bool
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

    def _parting(self, alt: Alt, chain: tuple[Block, ...], ways: tuple[Way, Way], by_lanes: bool) -> Parting | None:
        differs = difference(ways[0].steps, ways[1].steps)
        if differs is None:
            return None
        side, step, against = differs
        found = self._made(alt, chain, ways, step, side, by_lanes)
        if found is not None and against is not None:
            found.order, found.against = True, against
        return found

    def _swapped(self, alt: Alt, chain: tuple[Block, ...], ways: tuple[Way, Way], by_lanes: bool) -> Parting | None:
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
        self, alt: Alt, chain: tuple[Block, ...], ways: tuple[Way, Way], step: Step, side: int, by_lanes: bool
    ) -> Parting | None:
        if step.event is None or (isinstance(step.key, tuple) and leaves_when_told(chain)):
            return None
        left = ways[1 - side].left
        found = Parting(alt, step.event, alt.varies or RANKED, side == 0, left, by_lanes, False, calls_of(chain))
        found.via, found.chain, found.lanes = step.via, chain, (ways[side].lane, ways[1 - side].lane)
        found.times = (ways[side].keys.count(step.key), ways[1 - side].keys.count(step.key))
        found.is_alone = self._is_alone(alt)
        if not ways[1 - side].steps:
            found.behind = tuple(s for s in ways[side].steps if s.event is not None and s.event is not step.event)
        return found

    def _is_alone(self, alt: Alt) -> bool:
        """Return whether some ranks of each world do not come to a test."""
        comes = alt.then_lanes | alt.else_lanes
        several = [group for group in self.machine.worlds.groups if len(group) > 1]
        return bool(several) and all(0 < sum(comes >> lane & 1 for lane in group) < len(group) for group in several)
