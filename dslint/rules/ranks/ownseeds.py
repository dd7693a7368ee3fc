"""Seeds that each rank has for itself, and the runs whose ranks must draw alike."""

from __future__ import annotations

import re

from dslint.python.events import Event
from dslint.python.varies import CLOCK, DATA, HOST, LOCAL, LOST, RANDOM, RANK, RANKED
from dslint.rules.runs import RunQuery

# A mesh of more than one dimension, or of a shape that stands elsewhere: along one of them ranks may share their data.
# One of a single dimension, `init_device_mesh("cuda", (world,))`, only says where parameters are sharded.
MESHES = r"init_device_mesh\s*\((?!\s*[\w.\"']+\s*,\s*(?:mesh_shape\s*=\s*)?\(\s*[\w.]+(?:\(\))?\s*,?\s*\))"
# Ranks that hold parts of one model draw alike.
PARALLEL = re.compile(
    r"(?:sequence|tensor|pipeline|context)_?parallel|\b[tsp]p_size|ulysses|PipelineModule|\bmpu\b|" + MESHES, re.I
)
_OWN = RANKED | RANDOM | CLOCK | HOST | LOST | DATA


def is_own_seed(event: Event) -> bool:
    """Return whether a call certainly seeds with a number that the rank takes part in."""
    seed = event.arguments.get("seed", event.arguments.get("a"))
    return seed is not None and bool(seed.varies & (RANK | LOCAL)) and not event.may


def common_seeds(run: RunQuery) -> list[Event]:
    """Return the calls that seed torch; nothing where one of them seeds each rank for itself."""
    found = []
    for event in (h.event for h in run.happenings("seeds")):
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
