"""Random orders: what shuffles a list or draws a permutation, and whether each process draws one of its own."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dslint.python.events import Event, Node
from dslint.python.heap import CONTENT, ITEMS, REST
from dslint.python.seeds import state_of
from dslint.python.values import OPAQUE, Atom, Instance, Tuple, Unknown, Value, one
from dslint.python.varies import LOST, ORDER, RANDOM, RANKED

if TYPE_CHECKING:
    from dslint.python.binding import BoundArguments
    from dslint.python.libraries import Row
    from dslint.python.machine import Machine
    from dslint.python.source import Module

# In a row: which argument is put in a random order, or that the result is in one.
_DRAWS, _GIVES = "draws_order", "gives_order"
_GIVEN = ("generator", "seed", "random_state")
Place = tuple["Module", ast.AST]


def drawn(m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None) -> tuple[int, Place | None]:
    """Return by what the order that a call draws differs between ranks, and where that comes from."""
    if not row.extra.keys() & {_DRAWS, _GIVES}:
        return 0, None
    given = next((v for name in _GIVEN if (v := bound.given.get(name)) is not None and v.constants != (None,)), None)
    if given is None and isinstance(receiver, Instance):
        given = one(receiver)
    if given is None:
        given = state_of(m, row)
    # The generator of a GPU begins with a fixed number, those of the host with another one in each process.
    device = bound.given.get("device")
    is_host = device is None or device.constants in ((None,), ("cpu",))
    bits = m.varies(given) if given is not None else RANDOM if is_host else 0
    place = m.origin(given) if given is not None else None
    return (0, None) if bits & LOST else (bits & (RANKED | RANDOM), place)


def noted(event: Node, bits: int, seed: Place | None) -> None:
    """Keep with a call by what the order differs that it draws, and where the seed becomes each rank's own."""
    if bits and isinstance(event, Event):
        event.drawn |= bits
        if seed is not None:
            event.origins["order"] = seed


def marked(m: Machine, row: Row, bound: BoundArguments, result: Value, node: ast.AST) -> Value:
    """Note in the list, or in the result, that its order is one that each process has drawn; return the result."""
    is_given = _GIVES in row.extra
    value = result if is_given else bound.given.get(str(row.extra[_DRAWS]))
    for atom in value.atoms if value is not None else ():
        if isinstance(atom, Instance):
            mark(m, atom, (m.frame.module, node))
    return result.with_(ORDER) if is_given else result


def mark(m: Machine, atom: Instance, origin: Place) -> None:
    """Note that what an object holds is in an order of each process."""
    content = m.store.get((atom, CONTENT)) or Value(frozenset((Unknown(OPAQUE, "list in a random order"),)))
    m.store.set((atom, CONTENT), _changed(content, content.varies | ORDER, content.origin or origin))
    for name in (ITEMS, REST):
        held = m.store.get((atom, name))
        if held is not None and held.atoms:
            m.store.set((atom, name), held.with_(ORDER, 0, frozenset(), origin))


def forget(m: Machine, atom: Instance) -> None:
    """Note that a list is in an order of its own again."""
    for name in (CONTENT, ITEMS, REST):
        held = m.store.get((atom, name))
        if held is None:
            continue
        parts = [part for part in held.atoms if isinstance(part, Tuple)]
        if name == ITEMS and len(parts) == len(held.atoms) and any(i.varies & ORDER for p in parts for i in p.items):
            plain = (Tuple(tuple(_changed(i, i.varies & ~ORDER, i.origin) for i in p.items)) for p in parts)
            held = Value(frozenset(plain), held.varies, held.shape, held.made_by, None, held.origin)
            m.store.set((atom, name), held)
        if held.varies & ORDER:
            m.store.set((atom, name), _changed(held, held.varies & ~ORDER, held.origin))


def _changed(value: Value, varies: int, origin: Place | None) -> Value:
    return Value(value.atoms, varies, value.shape, value.made_by, value.number if varies & ORDER == 0 else None, origin)
