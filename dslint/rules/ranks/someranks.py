"""Events that only some ranks reach: by which test, and through which call of the function in which the test stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from dslint.python import formulas
from dslint.python.events import Alt, Event, Loop, events
from dslint.python.jobtests import SEVERAL
from dslint.python.queries.arms import Arm, other_arms
from dslint.python.queries.asked import expressions_of
from dslint.python.queries.order import following
from dslint.python.source import Module
from dslint.rules.runs import Happening, RunQuery

# A test of whether there are several processes: there are.
_ASKS_PROCESSES = re.compile(r"(?i)distributed|initialized|ddp|parallel|world|n_?gpu|" + SEVERAL)


@dataclass(frozen=True, slots=True)
class SomeRanks:
    """An event to which only the ranks in `lanes` come; `test` is the nearest test that keeps others away."""

    found: Happening
    lanes: int
    test: Alt
    arms: tuple[Arm, ...]

    @property
    def place(self) -> tuple[Module, ast.AST]:
        """Return the call that leads to the event, in the function of the test."""
        line, module = getattr(self.test.node, "lineno", 0), self.test.module
        calls = list(self.found.calls)
        at = -1
        for number, call in enumerate(calls):
            node = getattr(call.function, "node", None)
            is_home = getattr(call.function, "module", None) is module and isinstance(node, ast.AST)
            if is_home and getattr(node, "lineno", 0) <= line <= getattr(node, "end_lineno", 0):
                at = number
        later = calls[at + 1 :]
        return (later[0].module, later[0].node) if later else (self.found.event.module, self.found.event.node)

    @property
    def asked(self) -> ast.AST:
        """Return the expression of the test."""
        return getattr(self.test.node, "test", None) or self.test.node

    def others_next(self, run: RunQuery, *, again: bool = True) -> Iterator[tuple[Event, bool]]:
        """Yield what the other ranks do, from the test on that keeps them away; and whether in an arm of their own.

        Without `again` each loop around it is in its last turn.
        """
        missing = run.machine.worlds.full & ~self.lanes
        own = {id(event): event for arm in self.arms for event in events(arm.block) if event.lanes & missing}
        yield from ((event, True) for event in own.values())
        for event in following(self.found.entry.tree, self.found.event, again=again):
            if event.lanes & missing:
                yield event, False

    @property
    def comes_last(self) -> bool:
        """Return whether the event happens in the last turn of each loop around it, too."""
        around, own = list(self.found.around), {id(arm.alt) for arm in self.arms}
        first = next((at for at, node in enumerate(around) if isinstance(node, Loop)), len(around))
        inner = next((at for at, node in enumerate(around) if at > first and id(node) in own), len(around))
        loops = [node for node in around[first:inner] if isinstance(node, Loop)]
        is_asked = any(isinstance(node, Alt) and id(node) not in own for node in around[first:])
        return bool(loops) and not is_asked and all(_ends_by_itself(loop) for loop in loops)

    def who(self, run: RunQuery) -> str:
        """Return the ranks that come to the event, in words."""
        worlds = run.machine.worlds
        names = {worlds.main: "only rank 0", worlds.full & ~worlds.main: "every rank but rank 0"}
        return names.get(self.lanes, "only some ranks")


def some_ranks(run: RunQuery, found: Happening, known: Mapping[object, bool] | None = None) -> SomeRanks | None:
    """Return who comes to an event when some ranks of a job never do; `None` when all may.

    `known` are tests that are decided wherever the event matters: see `decided_at`.
    """
    kept: list[Arm] = []
    lanes = found.event.lanes
    for arm in other_arms(found.entry.tree, found.around, found.event):
        away = _kept_away(run, arm, known or {})
        if is_partial(run, away):
            kept.append(arm)
            lanes &= ~away
    if not kept or not is_partial(run, lanes):
        return None
    return SomeRanks(found, lanes, kept[-1].alt, tuple(kept))


def is_partial(run: RunQuery, lanes: int) -> bool:
    """Return whether some ranks of a job are in a set of lanes, and others are not."""
    groups = (sum(1 << lane for lane in group) for group in run.machine.worlds.groups)
    return any(lanes & group and lanes & group != group for group in groups)


def _kept_away(run: RunQuery, arm: Arm, known: Mapping[object, bool]) -> int:
    """Return the lanes that take a side of a test wherever there are several processes."""
    mine, others = arm.alt.then_lanes, arm.alt.else_lanes
    if not arm.holds:
        mine, others = others, mine
    formula = formulas.of_test(arm.alt.test) if known else None
    if formula is not None:
        true, false = formulas.lanes(run.machine.worlds, formula, known)
        if not true & false:
            return true if arm.holds else false
    test = getattr(arm.alt.node, "test", None)
    wanted = ast.And if arm.holds else ast.Or
    if isinstance(test, ast.BoolOp) and isinstance(test.op, wanted) and mine & others:
        texts = [arm.alt.module.text(part) for part in test.values]
        if any(_ASKS_PROCESSES.search(text) for text in texts):
            return mine
    return mine & ~others


def _ends_by_itself(loop: Loop) -> bool:
    """Return whether each turn of a loop runs to its end: nothing breaks off, returns or goes on with the next one."""
    if not isinstance(loop.node, ast.For | ast.AsyncFor):
        return False
    pending: list[tuple[ast.AST, bool]] = [(part, True) for part in loop.node.body]
    while pending:
        node, is_own = pending.pop()
        if isinstance(node, ast.Return) or (is_own and isinstance(node, ast.Break | ast.Continue)):
            return False
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            is_own = is_own and not isinstance(node, ast.For | ast.AsyncFor | ast.While)
            pending += [(child, is_own) for child in ast.iter_child_nodes(node)]
    return True


def decided_at(found: Happening) -> dict[object, bool]:
    """Return the tests that are decided where an event happens: a model that is wrapped there only tells as much."""
    known: dict[object, bool] = {}
    for alt, side in pairwise([*found.around, found.event]):
        if isinstance(alt, Alt):
            is_then = any(node is side for node in alt.then.items)
            known.update(formulas.implied(formulas.of_test(alt.test), is_then))
    return {key: holds for key, holds in known.items() if key is not None}


def is_of_several(found: Happening) -> bool:
    """Return whether an event happens wherever there are several processes: no test asks for anything else."""
    open_ = [node for node in found.around if isinstance(node, Alt) and node.then_lanes and node.else_lanes]
    return all(any(_ASKS_PROCESSES.search(ast.unparse(part)) for part in expressions_of(node)) for node in open_)
