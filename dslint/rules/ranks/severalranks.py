"""Where several ranks of a run come, and not all: the other side of a test that one rank passes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise, product

from dslint.python import formulas
from dslint.python.events import Alt, Event, Exit, Node, Seq
from dslint.python.lanes import Worlds
from dslint.python.values import Value
from dslint.python.varies import DIVERGENT, LOST, RANKED, UNSURE
from dslint.rules.ranks.everyrank import Arrival, arrivals, is_common, keeps_away
from dslint.rules.ranks.parted import asked
from dslint.rules.runs import RunQuery

_MOST_TESTS = 4


def several_arrivals(run: RunQuery, *tags: str) -> Iterator[tuple[Arrival, Alt]]:
    """Yield the events that two or more ranks of a job reach, and not all of them, with the test that parts them.

    `if distributed and rank == 0: ... else: ...`: whatever the other tests say, where ranks go different ways at all,
    several of them come to the other side.
    """
    for found in arrivals(run, *tags, come=lambda event, around: _parting(run, event, around) is not None):
        test = _parting(run, found.event, found.around)
        if test is not None:
            yield found, test


def _parting(run: RunQuery, event: Event, around: tuple[Node, ...]) -> Alt | None:
    """Return the one test of the rank around an event that sends several ranks there, but not all."""
    if event.may or "rank-zero-only" in event.tags or event.varies & (DIVERGENT | LOST | UNSURE) & ~RANKED:
        return None
    if any(keeps_away(run, node) for node in around):
        return None
    sides = {id(test): side for test, side in pairwise(around) if isinstance(test, Alt) and isinstance(side, Seq)}
    own = [node for node in around if isinstance(node, Alt) and not is_common(node)]
    if len(own) != 1 or own[0].varies & (DIVERGENT | LOST | UNSURE) & ~RANKED:
        return None
    within = around[around.index(own[0]) + 1 :]
    if any(isinstance(node, Alt) and _names(node) & _names(own[0]) for node in within):
        return None  # `if several and rank == 0: ... elif not several:`
    holds = _is_passed(own[0], sides.get(id(own[0])))
    return own[0] if holds is not None and _are_several(run.machine.worlds, own[0].test, holds) else None


def _names(test: Alt) -> set[str]:
    return {node.id for node in ast.walk(asked(test)) if isinstance(node, ast.Name)}


def _is_passed(test: Alt, side: Seq | None) -> bool | None:
    """Return on which side of a test an event lies; after a test, on the side that does not leave the block."""
    if side is not None:
        return side is test.then
    left = [bool(block.items) and isinstance(block.items[-1], Exit) for block in (test.then, test.orelse)]
    return None if left[0] == left[1] else left[1]


def _are_several(worlds: Worlds, test: Value | None, holds: bool) -> bool:
    """Return whether, by some answer to the tests that are common, several ranks of a world take a side, and not all.

    No answer may send exactly one rank there: such a test lets one rank through, and all where there are no others.
    """
    formula = formulas.of_test(test)
    common = list(dict.fromkeys(formulas.atoms(formula)))
    if formula is None or len(common) > _MOST_TESTS or any(formulas.is_own(atom) for atom in common):
        return False
    found = False
    for answers in product((True, False), repeat=len(common)):
        true, false = formulas.lanes(worlds, formula, dict(zip(common, answers, strict=True)))
        if true & false:
            return False
        takes = true if holds else false
        for group in worlds.groups:
            count = sum(takes >> lane & 1 for lane in group)
            if len(group) > 2 and count == 1:
                return False
            found |= 1 < count < len(group)
    return found
