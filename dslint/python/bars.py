"""Progress bars: what they show is what a loop goes through, with a bar or without (`if rank == 0: x = tqdm(x)`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslint.python.values import Instance, Value

if TYPE_CHECKING:
    from dslint.python.heap import Heap, Outcome
    from dslint.python.store import Key

# Bars around bars that are looked behind.
_MOST = 4


def same_items(heap: Heap, first: Value, second: Value) -> bool:
    """Return whether one of two values is a progress bar over the other, or both are bars over the same."""
    shown = (_shown(heap, first), _shown(heap, second))
    return shown != (first, second) and shown[0].atoms == shown[1].atoms


def is_of_earlier_turn(heap: Heap, key: Key, outcome: Outcome) -> bool:
    """Return whether a way that leaves a bar alone, where another makes it, holds this of that of an earlier turn.

    `for epoch in ...: if rank == 0: bar = tqdm(x)`: what the other ranks have of it says nothing of the new one.
    """
    owner = key[0]
    if not isinstance(owner, Instance) or not isinstance(owner.cls, str) or key in outcome.changes:
        return False
    return _is_bar(heap, owner.cls)


def _shown(heap: Heap, value: Value) -> Value:
    for _ in range(_MOST):
        atom = value.single
        if not isinstance(atom, Instance) or not isinstance(atom.cls, str) or not _is_bar(heap, atom.cls):
            break
        inner = heap.store.get((atom, "iterable"))
        if inner is None or not inner.atoms:
            break
        value = inner
    return value


def _is_bar(heap: Heap, cls: str) -> bool:
    row = heap.libraries.class_(cls)
    return row is not None and row.kind == "progress"
