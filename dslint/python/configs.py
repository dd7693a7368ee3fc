"""What a dictionary says that is a DeepSpeed configuration."""

from __future__ import annotations

from dslint.python.machine import Machine
from dslint.python.values import Instance, Value


def stage_of(m: Machine, value: Value | None) -> int | None:
    """Return the ZeRO stage in a configuration; `None` where it is no dictionary, or the stage is not known."""
    zero = _item(m, value, "zero_optimization")
    if zero is None:
        return None
    stage = _item(m, zero, "stage")
    known = stage.constants if stage is not None else None
    return known[0] if known is not None and len(known) == 1 and isinstance(known[0], int) else None


def _item(m: Machine, value: Value | None, key: str) -> Value | None:
    atom = value.single if value is not None else None
    return m.store.get((atom, ("key", key))) if isinstance(atom, Instance) else None
