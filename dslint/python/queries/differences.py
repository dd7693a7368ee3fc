"""How the steps of two ranks differ, and which tests are decided before the place where they part."""

from __future__ import annotations

from collections import Counter

from dslint.python import formulas
from dslint.python.events import Alt, Call, Exit, Seq
from dslint.python.heap import RECEIVED
from dslint.python.queries.parting import Block
from dslint.python.queries.steps import LOST, Step
from dslint.python.values import Unknown
from dslint.python.varies import DIVERGENT


def difference(first: list[Step], second: list[Step]) -> tuple[int, Step, Step | None] | None:
    """Return the side with a call that the other lacks, that call, and the other's where the order differs."""
    at = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a.key != b.key), min(len(first), len(second))
    )
    a, b = first[at:], second[at:]
    if not a and not b:
        return None
    was_lost = any(step.key == LOST.key for step in first[:at])
    is_open = was_lost or any(_is_lost(step.key) for step in (*a, *b))
    if is_open and (was_lost or not a or not b or _is_lost(a[0].key) or _is_lost(b[0].key)):
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
        others = (b, a)[side]
        step = next((s for s in steps if s.key in more and s.event is not None and not _is_served(s, others)), None)
        if step is not None:
            return side, step, None
    return None


def _is_served(step: Step, others: list[Step]) -> bool:
    """Return whether one side may serve the other in a loop, until it is told to leave."""
    turns, keys = _turns(step.key), {other.key for other in others}
    return any(key in keys for key in turns) or any(step.key in _turns(key) for key in keys)


def _turns(key: object) -> tuple[object, ...]:
    """Return what a loop waits for in each turn, and what the sides of an unknown test wait for; else nothing."""
    if isinstance(key, tuple) and len(key) == 3 and key[0] == "loop" and isinstance(key[2], tuple):
        return key[2]
    if isinstance(key, tuple) and len(key) == 4 and key[0] == "alt":
        return (*key[2], *key[3])
    return ()


def _is_lost(key: object) -> bool:
    """Return whether nobody knows what a step is, or what a side of an unknown test in it does."""
    return key == LOST.key or (isinstance(key, tuple) and any(map(_is_lost, key)))


def passed_tests(chain: tuple[Block, ...]) -> dict[object, bool]:
    """Return the tests that are decided where a block goes on after them: the other side has left."""
    found: dict[object, bool] = {}
    for block in chain:
        for item in block.before:
            formula = formulas.of_test(item.test) if isinstance(item, Alt) else None
            if not isinstance(item, Alt) or formula is None or item.varies & DIVERGENT:
                continue
            for side, holds in ((item.then, False), (item.orelse, True)):
                if leaves(side):
                    found.update(formulas.implied(formula, holds))
    return found


def leaves(side: Seq) -> bool:
    """Return whether a block is left at its end for certain."""
    last = side.items[-1] if side.items else None
    if isinstance(last, Alt):
        return all(
            leaves(part) for part, lanes in ((last.then, last.then_lanes), (last.orelse, last.else_lanes)) if lanes
        )
    return isinstance(last, Exit)


def leaves_when_told(chain: tuple[Block, ...]) -> bool:
    """Return whether a flag that all ranks were told ends the block before: it may answer later tests as well."""
    for item in (item for block in chain for item in block.before):
        if (
            isinstance(item, Alt)
            and item.test is not None
            and any(isinstance(atom, Unknown) and atom.reason == RECEIVED for atom in item.test.atoms)
        ):
            return any(isinstance(side.items[-1], Exit) for side in (item.then, item.orelse) if side.items)
    return False


def calls_of(chain: tuple[Block, ...]) -> tuple[Call, ...]:
    """Return the calls of project functions around a place."""
    return tuple(block.node for block in chain if isinstance(block.node, Call))
