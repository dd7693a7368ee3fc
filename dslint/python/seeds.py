"""The generators of a process: what is drawn after `torch.manual_seed(seed + rank)` differs by rank."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import reduce
from operator import or_

from dslint.python.binding import BoundArguments
from dslint.python.heap import CONTENT
from dslint.python.libraries import ClassRow, Row
from dslint.python.machine import Machine
from dslint.python.values import OPAQUE, TRUE, Instance, Unknown, Value
from dslint.python.varies import RANDOM, RANK, RANKED

# Libraries with a generator of the process; any other one seeds all three.
_LIBRARIES = ("torch", "numpy", "random")
_OWNER = "generators of the process"


def seeded(m: Machine, row: Row, bound: BoundArguments) -> None:
    """Keep by what the seed of a process differs between ranks."""
    seed = bound.given.get(str(row.extra.get("seed", "")))
    if seed is None:
        return
    own = bound.given.get(str(row.extra.get("per_rank", "")))
    bits = m.varies(seed) & RANKED | (RANK if own is not None and own.constants == TRUE.constants else 0)
    state = Value(frozenset((Unknown(OPAQUE, "state of a generator"),)), bits, 0, frozenset(), None, m.origin(seed))
    library = row.path.partition(".")[0]
    for name in _LIBRARIES:
        if library == name or library not in _LIBRARIES:
            m.store.set((_OWNER, name), state)


def drawn(m: Machine, row: Row, bound: BoundArguments) -> int:
    """Return by what numbers of the process's own generator differ: by rank where each rank has its own seed."""
    given = bound.given.get("generator")
    if not row.varies or not row.varies & RANDOM or (given is not None and given.constants != (None,)):
        return 0
    state = state_of(m, row)
    return m.varies(state) & RANKED if state is not None else 0


def state_of(m: Machine, row: Row) -> Value | None:
    """Return the state of the process's own generator that a function draws from; `None` where nothing seeded it."""
    return m.store.get((_OWNER, str(row.extra.get("generator", row.path.partition(".")[0]))))


# Layers without weights, and containers, whose layers draw for themselves.
_DRAWS_NONE = frozenset({"torch.nn.Module", "torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"})
_DRAWN_BY = "#drawn by"


def initialized(m: Machine, row: ClassRow, receiver: Instance) -> None:
    """Keep by what the first weights of a layer differ: its process draws them."""
    state = m.store.get((_OWNER, "torch"))
    if state is not None and state.varies & RANKED and row.path not in _DRAWS_NONE and row.path.startswith("torch.nn."):
        m.store.set((receiver, _DRAWN_BY), state)


def generator_made(m: Machine, receiver: Instance, bits: int, node: ast.AST) -> None:
    """Keep that a generator without a seed begins in another state in each process."""
    if bits:
        state = frozenset((Unknown(OPAQUE, "state of a generator"),))
        m.store.set((receiver, CONTENT), Value(state, bits, 0, frozenset(), None, (m.frame.module, node)))


def drawn_weights(m: Machine, modules: Iterable[Instance]) -> int:
    """Return by what the first weights of modules differ between ranks."""
    found = (m.store.get((module, _DRAWN_BY)) for module in modules)
    return reduce(or_, (m.varies(state) & RANKED for state in found if state is not None), 0)
