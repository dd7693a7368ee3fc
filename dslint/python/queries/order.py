"""What may run after an event: the rest of its blocks, and the next turn of the loops around it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dslint.python.events import Alt, Event, Loop, Node, Seq, children, events


def following(tree: Node, event: Event) -> Iterator[Event]:
    """Yield the events that may run after `event`, in the order in which they do; a loop around it begins again."""
    path = _path(tree, event)
    for parent, child in reversed(list(pairwise(path))):
        if isinstance(parent, Alt):
            continue  # its other side is no later than this one
        inside = list(parent.items) if isinstance(parent, Seq) else list(children(parent))
        at = next(number for number, node in enumerate(inside) if node is child)
        for node in inside[at + 1 :]:
            yield from events(node)
        if isinstance(parent, Loop) and child is parent.body:
            yield from events(parent.body)


def _path(tree: Node, event: Event) -> list[Node]:
    """Return the nodes from the tree down to the event, with both."""
    pending: list[tuple[Node, ...]] = [(tree,)]
    seen: set[int] = set()
    while pending:
        path = pending.pop()
        node = path[-1]
        if node is event:
            return list(path)
        if id(node) not in seen:
            seen.add(id(node))
            pending.extend((*path, child) for child in reversed(children(node)))
    return []
