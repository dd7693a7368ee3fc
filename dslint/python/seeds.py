"""The generators of a process: what is drawn after `torch.manual_seed(seed + rank)` differs by rank."""

from __future__ import annotations

from dslint.python.binding import BoundArguments
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.values import OPAQUE, TRUE, Unknown, Value
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
    state = m.store.get((_OWNER, row.path.partition(".")[0]))
    return m.varies(state) & RANKED if state is not None else 0
