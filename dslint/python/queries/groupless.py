"""Which events come in a run that has made no process group, where other ways through the program make one."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from dslint.python import formulas
from dslint.python.events import (
    RAISE,
    RETURN,
    Alt,
    Call,
    Context,
    Event,
    Exit,
    Loop,
    Lost,
    Node,
    Seq,
    Try,
    children,
    walk,
)
from dslint.python.jobtests import asks_for_job, group_atoms
from dslint.python.lanes import Worlds
from dslint.python.queries.groupmodes import Side, code_of, given_to, lanes_of, leaves, may_lack, may_make, words_of

NO, YES, MAYBE = "no", "yes", "maybe"
_MOST_STATES, _MOST_STEPS = 10, 40_000


@dataclass(frozen=True, slots=True)
class Way:
    """How the program may have come to a place: whether it has a group, and the sides that it took.

    `mode` are the sides on which no group is made where others make one. `sides` are those of other tests that keep
    some runs away. `is_handled`: the program has asked for the mode once more since.
    """

    group: str = NO
    mode: tuple[Side, ...] = ()
    sides: tuple[Side, ...] = ()
    facts: frozenset[tuple[object, bool]] = frozenset()
    is_handled: bool = False


@dataclass(frozen=True, slots=True)
class Lonely:
    """An event that comes without a group, on a way on which none is made."""

    event: Event
    way: Way


Ways = dict[str, list[Way]]
_ON = ""  # control goes on behind the node


@dataclass
class Groupless:
    """Follows all ways through a tree and keeps apart those on which there is a process group and the others."""

    worlds: Worlds
    makes: Callable[[Event], bool]
    may_make: Callable[[Event], bool]
    ends: Callable[[Event], bool]
    needs: Callable[[Event], bool]
    spawns: frozenset[int] = frozenset()
    found: dict[tuple[int, tuple[Side, ...]], Lonely] = field(default_factory=dict)
    steps: int = 0
    _concern: dict[int, bool] = field(default_factory=dict)
    _left: dict[int, bool] = field(default_factory=dict)
    _asking: dict[int, bool] = field(default_factory=dict)
    _answers: dict[int, bool] = field(default_factory=dict)
    _carriers: set[str] = field(default_factory=set)
    _calls: set[int] = field(default_factory=set)

    def of(self, tree: Seq) -> list[Lonely]:
        """Return the events that need a group where a supported run has none."""
        self._walk(tree, Way())
        return list(self.found.values()) if self.steps < _MOST_STEPS else []

    # -- one node -------------------------------------------------------------------------------------------------

    def _walk(self, node: Node, way: Way) -> Ways:
        self.steps += 1
        if self.steps >= _MOST_STEPS:
            return {_ON: [replace(way, group=MAYBE)]}
        if isinstance(node, Event):
            return self._event(node, way)
        if isinstance(node, Exit):
            return {node.kind: [way]}
        if isinstance(node, Lost):
            return {_ON: [replace(way, group=MAYBE) if may_make(node.node) else way]}
        if isinstance(node, Seq):
            return self._block(node.items, way)
        if isinstance(node, Alt):
            return self._test(node, way)
        if isinstance(node, Loop):
            return self._loop(node, way)
        if isinstance(node, Call):
            return self._call(node, way)
        if isinstance(node, Try):
            return self._try(node, way)
        return self._walk(node.body, way) if isinstance(node, Context) else {_ON: [way]}

    def _event(self, event: Event, way: Way) -> Ways:
        if self.makes(event):
            return {_ON: [replace(way, group=MAYBE if event.may else YES)]}
        if self.may_make(event):
            return {_ON: [replace(way, group=MAYBE)]}
        if way.group == NO and way.mode and self.needs(event) and not event.may:
            if not any(self._asks(side.node) for side in way.sides) and not self._is_beside(event):
                self.found.setdefault((id(event.node), way.mode), Lonely(event, way))
                return {}
        elif self.ends(event) and way.group == YES:
            return {_ON: [replace(way, group=MAYBE)]}
        return {_ON: [way]}

    def _block(self, items: Iterable[Node], way: Way) -> Ways:
        found: Ways = {_ON: [way]}
        for item in items:
            if isinstance(item, Call) and not self._tells(item):
                self._keep_answer(item)
            elif self._tells(item):
                on = found.pop(_ON, [])
                for each in on:
                    _add(found, self._walk(item, each))
                _merge(found)
                if not found.get(_ON):
                    break
        return found

    def _test(self, alt: Alt, way: Way) -> Ways:
        decided = self._decided(alt, way)
        open_sides = [n for n in (1, 0) if lanes_of(alt, n) and decided in (None, n)]
        sides = [n for n in (1, 0) if n in open_sides or (not lanes_of(alt, n) and self._may_be_alone(alt, n, way))]
        is_handled = way.is_handled or (bool(way.mode) and self._asks(alt) and not _is_of_group(alt))
        found: Ways = {}
        for number in sides:
            inner = replace(way, is_handled=is_handled)
            if len(sides) > 1:
                facts = formulas.implied(formulas.of_test(alt.test), bool(number)) if lanes_of(alt, number) else {}
                kept = {**dict(way.facts), **facts}
                inner = replace(inner, sides=(*way.sides, Side(alt, number)), facts=frozenset(kept.items()))
            if lanes_of(alt, number) or not leaves(alt, number):
                _add(found, self._walk(alt.then if number else alt.orelse, inner))
        self._note_modes(found, way, {_ON})
        _merge(found)
        return found

    def _may_be_alone(self, alt: Alt, number: int, way: Way) -> bool:
        """Return whether a run without a launcher may take a side that no rank of a job takes."""
        if way.group != NO:
            return False
        if way.mode:
            return self._asks(alt)
        return not code_of(alt, number) and may_lack(alt)

    def _decided(self, alt: Alt, way: Way) -> int | None:
        formula = formulas.of_test(alt.test)
        if formula is None:
            return None
        known = dict(way.facts)
        if way.group != MAYBE:
            known |= {atom: way.group == YES or holds for atom, holds in group_atoms(formula).items()}
        true, false = formulas.lanes(self.worlds, formula, known)
        return None if true and false else 1 if true else 0

    def _loop(self, loop: Loop, way: Way) -> Ways:
        inner = way
        if way.mode and loop.subject is not None and self._asks_text(loop.module.text(_head(loop.node))):
            inner = replace(way, group=MAYBE)  # so many turns as there are ranks
        body = self._walk(loop.body, inner)
        again = [self._tried_again(w, way) for kind in (_ON, "continue") for w in body.get(kind, ())]
        rest = [*again, *body.get("break", ())]
        found: Ways = {kind: ways for kind, ways in body.items() if kind not in (_ON, "break", "continue")}
        skipped = [] if loop.at_least_once and rest else [way]
        found[_ON] = [*rest, *skipped]
        _merge(found)
        return found

    @staticmethod
    def _tried_again(after: Way, before: Way) -> Way:
        """Where a turn of a loop has failed to make a group, the next one may not."""
        return after if after.mode == before.mode else replace(after, group=MAYBE)

    def _call(self, call: Call, way: Way) -> Ways:
        is_spawned = id(call.node) in self.spawns
        body = self._walk(call.body, replace(way, group=NO) if is_spawned else way)
        self._note_modes(body, way, {_ON, RETURN})
        if is_spawned:
            return {_ON: [way]}
        self._keep_answer(call)
        found: Ways = {_ON: [w for kind in (_ON, RETURN) for w in body.get(kind, ())]}
        _merge(found)
        return found

    def _try(self, node: Try, way: Way) -> Ways:
        guarded = replace(way, sides=(*way.sides, Side(node, 0)))
        body = self._walk(node.body, guarded if node.handlers else way)
        found: Ways = {kind: ways for kind, ways in body.items() if kind != _ON}
        for each in body.get(_ON, ()):
            _add(found, self._walk(node.orelse, each))
        for number, handler in enumerate(node.handlers, 1):
            _add(found, self._walk(handler, replace(way, sides=(*way.sides, Side(node, number)))))
        self._note_modes(found, way, {_ON})
        _merge(found)
        final: Ways = {}
        for kind, ways in found.items():
            for each in ways:
                after = self._walk(node.final, each)
                _add(final, {kind if end == _ON else end: w for end, w in after.items()})
        _merge(final)
        return final

    # -- which tests are those of a mode --------------------------------------------------------------------------

    def _note_modes(self, found: Ways, before: Way, kinds: set[str]) -> None:
        """Where some ways have made a group and others have not, the sides that these took are a mode."""
        after = [way for kind in kinds for way in found.get(kind, ())]
        if before.group != NO or not any(way.group == YES for way in after):
            return
        for kind in kinds & set(found):
            ways = found[kind]
            for at, way in enumerate(ways):
                new = tuple(side for side in way.sides if side not in before.sides)
                if way.group == NO and new:
                    ways[at] = replace(way, mode=(*way.mode, *new), sides=before.sides)
                    for side in new:
                        self._carriers |= words_of(side)

    def _asks(self, node: Alt | Try) -> bool:
        """Return whether a test may ask for the mode, or for the job: what it guards may stay away without a group."""
        if isinstance(node, Try):
            return True
        test = getattr(node.node, "test", node.node)
        if id(node.node) not in self._asking:
            self._asking[id(node.node)] = asks_for_job(node.asks or node.node, None)
        if self._asking[id(node.node)] or self._asks_text(node.module.text(test)):
            return True
        return any(id(inner) in self._calls for inner in ast.walk(test) if isinstance(inner, ast.Call))

    def _is_beside(self, event: Event) -> bool:
        """Return whether an expression asks for the mode before it comes to the event: `not several or get_rank()`."""
        child, parent = event.node, event.module.parents.get(event.node)
        while isinstance(parent, ast.expr | ast.keyword):
            parts: list[ast.expr] = []
            if isinstance(parent, ast.BoolOp):
                parts = parent.values[: next((n for n, part in enumerate(parent.values) if part is child), 0)]
            elif isinstance(parent, ast.IfExp) and child is not parent.test:
                parts = [parent.test]
            if any(asks_for_job(part, None) or self._asks_text(event.module.text(part)) for part in parts):
                return True
            child, parent = parent, event.module.parents.get(parent)
        return False

    def _asks_text(self, text: str) -> bool:
        words = set(re.findall(r"[A-Za-z_]\w*", text))
        return bool(words & self._carriers)

    def _keep_answer(self, call: Call) -> None:
        if id(call.body) not in self._answers:
            makes = any(isinstance(node, Event) and self.makes(node) for node in walk(call.body))
            self._answers[id(call.body)] = makes or self._has_tests(call.body)
        if self._answers[id(call.body)]:
            self._calls.add(id(call.node))
            self._carriers |= given_to(call)

    def _has_tests(self, body: Seq) -> bool:
        """Return whether a call asks for the job or the mode: what it returns may say the answer."""
        return any(isinstance(node, Alt) and self._asks(node) for node in walk(body))

    # -- what concerns the group ----------------------------------------------------------------------------------

    def _tells(self, node: Node) -> bool:
        """Return whether something in a node concerns the group, or leaves the block around it."""
        return self._kept(self._concern, node, self._is_concern) or self._kept(self._left, node, _is_leaving)

    def _is_concern(self, node: Node) -> bool | None:
        if isinstance(node, Event):
            return self.makes(node) or self.may_make(node) or self.needs(node) or self.ends(node)
        return may_make(node.node) if isinstance(node, Lost) else None

    def _kept(self, known: dict[int, bool], node: Node, is_it: Callable[[Node], bool | None]) -> bool:
        """Return whether something inside a node is such a thing; `is_it` says `None` where its children decide."""
        found = known.get(id(node))
        if found is None:
            found = is_it(node)
            if found is None:
                found = any(self._kept(known, child, is_it) for child in children(node))
            known[id(node)] = found
        return found


def _is_leaving(node: Node) -> bool | None:
    return True if isinstance(node, Exit) else False if isinstance(node, Event | Lost | Call) else None


def _is_of_group(alt: Alt) -> bool:
    return bool(group_atoms(formulas.of_test(alt.test)))


def _head(node: ast.AST) -> ast.AST:
    return getattr(node, "iter", getattr(node, "test", node))


def _add(found: Ways, more: Ways) -> None:
    for kind, ways in more.items():
        if kind != RAISE:
            found.setdefault(kind, []).extend(ways)


def _merge(found: Ways) -> None:
    """Join the ways that have the same group and the same mode: what they have in common is known of both."""
    for kind, ways in found.items():
        joined: dict[tuple[str, tuple[Side, ...]], Way] = {}
        for way in ways:
            key = (way.group, way.mode)
            other = joined.get(key)
            if other is not None and other != way:
                sides = tuple(side for side in way.sides if side in other.sides)
                way = replace(
                    way, sides=sides, facts=way.facts & other.facts, is_handled=way.is_handled or other.is_handled
                )
            joined[key] = way
        found[kind] = list(joined.values())[:_MOST_STATES]
