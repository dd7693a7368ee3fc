"""What one rank does in a block, as far as other ranks wait for it: a list of steps, and how the block ends."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dslint.python import formulas
from dslint.python.events import (
    BREAK,
    CONTINUE,
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
    walk,
)
from dslint.python.machine import Machine
from dslint.python.queries.waits import Waits
from dslint.python.values import Instance
from dslint.python.varies import LOST as LOST_BIT
from dslint.python.varies import RANKED

END, EXIT = "end", "exit"
_MAX_STEPS = 4_000


class Step(NamedTuple):
    """One wait: what is compared, the event, and the call of a project function through which it is made."""

    key: object
    event: Event | None
    via: Call | None = None


LOST = Step("lost", None)


@dataclass(slots=True)
class Way:
    """The way of one lane: its steps so far, how it ends, and the tests that are decided on it."""

    lane: int
    known: dict[object, bool]
    steps: list[Step] = field(default_factory=list)
    end: str = END
    left: str = ""

    @property
    def keys(self) -> list[object]:
        """Return what is compared."""
        return [step.key for step in self.steps]


@dataclass(slots=True)
class Steps:
    """Reads blocks for one lane at a time."""

    machine: Machine
    waits: Waits
    _count: int = 0
    # The sides that ways have taken at tests, for the comparison that goes on.
    taken: dict[int, tuple[Alt, set[bool]]] = field(default_factory=dict)
    # Tests that are the same for all ranks and that nothing has decided, on which a way depends.
    open: dict[object, None] = field(default_factory=dict)
    # Whether the body of a function is quiet, by its identity.
    _quiet: dict[int, bool] = field(default_factory=dict)

    def extend(self, way: Way, items: Sequence[Node], local: bool) -> None:
        """Append what the lane does in a block; a way that has ended stays as it is."""
        if way.end == END:
            found, end = self.of(items, way, local)
            way.steps += found
            way.end = end
            way.left = way.left or (end if end != END else "")

    def of(self, items: Sequence[Node], way: Way, local: bool) -> tuple[list[Step], str]:
        """Return the waits of a lane in a block, and how the block ends."""
        self._count = 0
        return self._block(items, way, local)

    def _block(self, items: Sequence[Node], way: Way, local: bool) -> tuple[list[Step], str]:
        found: list[Step] = []
        for item in items:
            self._count += 1
            if self._count > _MAX_STEPS:
                return [*found, LOST], END
            steps, end = self._one(item, way, local)
            found += steps
            if end != END:
                return found, end
        return found, END

    def _one(self, item: Node, way: Way, local: bool) -> tuple[list[Step], str]:
        if isinstance(item, Event):
            return self._event(item, way, local), END
        if isinstance(item, Exit):
            return [], exit_kind(item)
        if isinstance(item, Alt):
            return self._alternative(item, way, local)
        if isinstance(item, Call):
            if self._is_quiet(item.body):
                return [], END
            steps, end = self._block(item.body.items, way, local)
            return [step._replace(via=item) for step in steps], end if end in (RAISE, EXIT) else END
        if isinstance(item, Loop):
            return self._loop(item, way, local)
        if isinstance(item, Context):
            return self._block(item.body.items, way, local or "no-sync" in tags_of(self.machine, item))
        if isinstance(item, Seq):
            return self._block(item.items, way, local)
        if isinstance(item, Try):
            return self._try(item, way, local)
        return [LOST] if isinstance(item, Lost) else [], END

    def _is_quiet(self, body: Seq) -> bool:
        """Return whether a function waits for nobody and always returns, whichever way a rank takes in it."""
        found = self._quiet.get(id(body))
        if found is None:
            found = self._quiet[id(body)] = not any(map(self._is_heard, walk(body)))
        return found

    def _is_heard(self, node: Node) -> bool:
        if isinstance(node, Event):
            return self.waits.of(node) is not None
        return isinstance(node, Lost) or (isinstance(node, Exit) and exit_kind(node) in (RAISE, EXIT))

    def _event(self, event: Event, way: Way, local: bool) -> list[Step]:
        if not event.lanes >> way.lane & 1:
            return []
        wait = self.waits.of(event, is_local=local)
        return [Step(wait.key or wait.kind, event)] if wait is not None else []

    def sides(self, alt: Alt, way: Way) -> tuple[bool, bool]:
        """Return whether a lane may take either side of a test, with what is decided on its way."""
        then, orelse = bool(alt.then_lanes >> way.lane & 1), bool(alt.else_lanes >> way.lane & 1)
        formula = formulas.of_test(alt.test) if then and orelse else None
        if formula is not None:
            true, false = formulas.lanes(self.machine.worlds, formula, way.known)
            may = bool(true >> way.lane & 1), bool(false >> way.lane & 1)
            if any(may):
                return may
        return then, orelse

    def _alternative(self, alt: Alt, way: Way, local: bool) -> tuple[list[Step], str]:
        goes, stays = self.sides(alt, way)
        if not goes and not stays:
            return [], END
        if not (goes and stays):
            self._note(alt, goes)
            return self._block((alt.then if goes else alt.orelse).items, way, local)
        self._note_open(alt, way)
        then, then_end = self._block(alt.then.items, self._decided(way, alt, True), local)
        orelse, else_end = self._block(alt.orelse.items, self._decided(way, alt, False), local)
        if then_end == else_end and [s.key for s in then] == [s.key for s in orelse]:
            return then, then_end
        if RAISE in (then_end, else_end) and not (then if then_end == RAISE else orelse):
            return (orelse, else_end) if then_end == RAISE else (then, then_end)  # who raises ends the job
        if alt.varies & LOST_BIT and any(s.event and "wraps-model" in s.event.tags for s in (*then, *orelse)):
            return [LOST], then_end if then_end == else_end else END  # who asks first wraps the model, here or before
        if alt.varies & RANKED and not self._is_alone(alt):
            self._note(alt, True, False)
            # A flag that some ranks have set: nobody knows which.
            return [LOST], then_end if then_end == else_end else END
        if then_end != else_end:
            # The same decision on all ranks (or a parting of its own): follow those that stay in the block.
            if END in (then_end, else_end):
                return (then, END) if then_end == END else (orelse, END)
            return (then, then_end) if else_end in (RAISE, EXIT) else (orelse, else_end)
        first = next((s for s in (*then, *orelse) if s.event is not None), LOST)
        key = ("alt", name_of(alt), tuple(s.key for s in then), tuple(s.key for s in orelse))
        return [Step(key, first.event, first.via)], then_end

    def _is_alone(self, alt: Alt) -> bool:
        """Return whether a test differs by rank only because the other ranks do not come to it."""
        comes = alt.then_lanes
        groups = [group for group in self.machine.worlds.groups if len(group) > 1]
        return comes == alt.else_lanes and all(sum(comes >> lane & 1 for lane in group) == 1 for group in groups)

    def _note(self, alt: Alt, *sides: bool) -> None:
        self.taken.setdefault(id(alt), (alt, set()))[1].update(sides)

    def _note_open(self, alt: Alt, way: Way) -> None:
        formula = formulas.of_test(alt.test)
        atoms = formulas.undecided(self.machine.worlds, formula, way.lane, way.known)
        if not any(formulas.is_own(atom) or _is_place(atom) for atom in atoms):
            self.open.update(dict.fromkeys(atoms))

    def _decided(self, way: Way, alt: Alt, holds: bool) -> Way:
        formula = formulas.of_test(alt.test)
        if formula is None:
            return way
        known = formulas.facts(self.machine.worlds, formula, holds, way.lane, way.known)
        return replace(way, known={**way.known, **known})

    def _loop(self, loop: Loop, way: Way, local: bool) -> tuple[list[Step], str]:
        body, left = self._block(loop.body.items, way, local)
        if left in (RETURN, BREAK, EXIT) and not is_endless(loop):
            # The first turn of this rank is its last.
            return body, END if left == BREAK else left
        tail, end = self._block(loop.orelse.items, way, local)
        if LOST in body:
            return [LOST], END
        first = next((step for step in body if step.event is not None), None)
        if first is None:
            return tail, end
        if is_endless(loop):
            return [LOST], END
        key = ("loop", _turns_of(loop), tuple(step.key for step in body))
        return [Step(key, first.event, first.via), *tail], end

    def _try(self, item: Try, way: Way, local: bool) -> tuple[list[Step], str]:
        steps, end = self._block([*item.body.items, *item.orelse.items], way, local)
        final, final_end = self._block(item.final.items, way, local)
        if end == RAISE and item.handlers:
            end = END
        return [*steps, *final], final_end if final_end != END else end


def _is_place(atom: object) -> bool:
    """Return whether a test has no other name than its place: another test may have the same answer."""
    return isinstance(atom, tuple) and len(atom) == 4 and all(isinstance(part, int) for part in atom)


def exit_kind(item: Exit) -> str:
    """Return how control leaves; a process that exits without an error leaves the others waiting."""
    if item.kind != RAISE:
        return item.kind
    return EXIT if item.is_clean else RAISE


def is_endless(loop: Loop) -> bool:
    """Return whether a loop is never left: `while True` without `break` and `return`."""
    test = loop.node.test if isinstance(loop.node, ast.While) else None
    if not isinstance(test, ast.Constant) or not test.value:
        return False
    return not any(isinstance(node, Exit) and node.kind in (RETURN, BREAK) for node in walk(loop.body))


def _turns_of(loop: Loop) -> object:
    """Return what tells two loops with the same waits apart: numbers of turns that are written out.

    Of others nobody knows: one side may have told the other how often it calls.
    """
    asked = loop.node.iter if isinstance(loop.node, ast.For) else None
    is_written = isinstance(asked, ast.Call) and asked.args and all(isinstance(a, ast.Constant) for a in asked.args)
    return name_of(loop) if is_written else ""


def name_of(node: Alt | Loop) -> object:
    """Return what two tests (or loops) share that are decided alike: their formula, else their code."""
    test = node.test if isinstance(node, Alt) else node.subject
    if isinstance(node, Alt) and test is not None and test.number is not None:
        return test.number
    asked = getattr(node.node, "iter" if isinstance(node, Loop) and isinstance(node.node, ast.For) else "test", None)
    return ast.dump(asked) if isinstance(asked, ast.expr) else id(node.node)


def tags_of(m: Machine, context: Context) -> frozenset[str]:
    """Return the tags of the rows behind a context manager."""
    found: frozenset[str] = frozenset()
    for atom in context.manager.atoms:
        tags = m.store.peek((atom, "#tags")) if isinstance(atom, Instance) else None
        if tags is not None and tags.constants is not None:
            found |= frozenset(str(tags.constants[0]).split(" "))
    return found | context.tags


__all__ = ["BREAK", "CONTINUE", "END", "EXIT", "LOST", "RAISE", "RETURN", "Step", "Steps", "Way", "tags_of"]
