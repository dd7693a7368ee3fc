"""The ways that a program does not take where something happens: the other sides of tests, and sides that were left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from dslint.python.events import Alt, Event, Exit, Node, Seq, children, walk


class Arm(NamedTuple):
    """One side of a test."""

    alt: Alt
    holds: bool

    @property
    def block(self) -> Seq:
        """Return what happens there."""
        return self.alt.then if self.holds else self.alt.orelse

    @property
    def text(self) -> str:
        """Return the code of the side; empty where there is none."""
        found = getattr(self.alt.node, "body" if self.holds else "orelse", None)
        parts = found if isinstance(found, list) else [found] if found is not None else []
        return "\n".join(self.alt.module.text(part) for part in parts)


def other_arms(tree: Seq, around: Sequence[Node], event: Event) -> Iterator[Arm]:
    """Yield the sides of tests that no way takes on which an event happens; `around` are the nodes around it."""
    for parent, child in pairwise([tree, *around, event]):
        if isinstance(parent, Alt):
            yield Arm(parent, not any(node is child for node in _flat(parent.then)))
        for block in (parent,) if isinstance(parent, Seq) else children(parent):
            items = _flat(block)
            at = next((number for number, node in enumerate(items) if node is child), 0)
            for node in items[:at]:
                if isinstance(node, Alt):
                    yield from (Arm(node, holds) for holds in (True, False) if _is_left(node, holds))


def _is_left(alt: Alt, holds: bool) -> bool:
    """Control leaves the block on that side of a test, and does not on the other one."""
    sides = (alt.then, alt.orelse) if holds else (alt.orelse, alt.then)
    left, other = map(_leaves, sides)
    return left and not other


def _leaves(side: Seq) -> bool:
    """Every way through a side of a test leaves: by an exit, or by a test of which both sides leave."""
    nodes = _flat(side)
    return any(
        isinstance(node, Exit) or (isinstance(node, Alt) and _leaves(node.then) and _leaves(node.orelse))
        for node in nodes
    )


def _flat(block: Node) -> list[Node]:
    """Return the nodes of a block, and those of a block right inside or of the side of a test that all take."""
    if isinstance(block, Alt) and not (block.then_lanes and block.else_lanes):
        return [block, *_flat(block.then if block.then_lanes else block.orelse)]
    if not isinstance(block, Seq):
        return [block]
    return [inner for item in block.items for inner in _flat(item)]


def inside(arms: Sequence[Arm]) -> set[int]:
    """Return which nodes are on some of these sides, by `id`."""
    return {id(node) for arm in arms for node in walk(arm.block)}
