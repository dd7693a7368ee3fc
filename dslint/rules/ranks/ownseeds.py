"""Seeds that each rank has for itself, and the runs whose ranks must draw alike."""

from __future__ import annotations

import re

from dslint.python.events import Event
from dslint.python.values import Tuple
from dslint.python.varies import CLOCK, DATA, HOST, LOCAL, LOST, RANDOM, RANK, RANKED
from dslint.rules.runs import RunQuery

_PARALLEL = re.compile(
    r"(?:sequence|tensor|pipeline|context)_?parallel|\b[tsp]p_size|ulysses|PipelineModule|\bmpu\b", re.I
)
_MESH, _MAKES_MESH = re.compile(r"init_device_mesh"), "torch.distributed.init_device_mesh"
_OWN = RANKED | RANDOM | CLOCK | HOST | LOST | DATA


def must_draw_alike(run: RunQuery) -> bool:
    """Return whether ranks may have to draw alike: they hold parts of one model, as words of the script say, or a mesh.

    A mesh of one dimension, `init_device_mesh("cuda", (world,))`, only says where parameters are sharded.
    """
    module = run.entries[0].module
    if module.search(_PARALLEL):
        return True
    made = [h.event for h in run.happenings("makes-group") if h.event.api == _MAKES_MESH]
    return bool(module.search(_MESH)) and not (made and all(map(_has_one_dimension, made)))


def _has_one_dimension(event: Event) -> bool:
    shape = event.arguments.get("mesh_shape")
    atom = shape.single if shape is not None else None
    return isinstance(atom, Tuple) and len(atom.items) == 1 and not event.open


def is_own_seed(event: Event) -> bool:
    """Return whether a call certainly seeds with a number that the rank takes part in."""
    seed = event.arguments.get("seed", event.arguments.get("a"))
    return seed is not None and bool(seed.varies & (RANK | LOCAL)) and not event.may


def common_seeds(run: RunQuery) -> list[Event]:
    """Return the calls that seed torch; nothing where one of them seeds each rank for itself."""
    found = []
    for event in (h.event for h in run.occurrences("seeds")):  # a helper may seed twice
        if event.api.startswith(("numpy.", "random.")) or "Generator" in event.api:
            continue
        row = run.machine.libraries.function(event.api)
        own = event.arguments.get(str(row.extra.get("per_rank"))) if row is not None else None
        if event.open or not event.arguments or (own is not None and own.constants != (False,)):
            return []
        if any(varies & _OWN for varies, _, _ in event.snapshot.values()) or event.lanes != run.machine.worlds.full:
            return []
        found.append(event)
    return found
