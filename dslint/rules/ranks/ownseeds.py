"""Seeds that each rank has for itself, and the runs whose ranks must draw alike."""

from __future__ import annotations

import re

from dslint.python.events import Event
from dslint.python.varies import LOCAL, RANK

# Ranks that hold parts of one model draw alike.
PARALLEL = re.compile(
    r"(?:sequence|tensor|pipeline|context)_?parallel|\b[tsp]p_size|ulysses|PipelineModule|\bmpu\b|init_device_mesh",
    re.I,
)


def is_own_seed(event: Event) -> bool:
    """Return whether a call certainly seeds with a number that the rank takes part in."""
    seed = event.arguments.get("seed", event.arguments.get("a"))
    return seed is not None and bool(seed.varies & (RANK | LOCAL)) and not event.may
