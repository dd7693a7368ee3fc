"""What a library asks of another one while it is imported."""

from __future__ import annotations

import functools
import json
import zlib
from dataclasses import dataclass
from typing import Any

from dslint.core.schemafiles import load_bytes


@dataclass(frozen=True)
class Need:
    """``dotted`` must exist for the import of ``module`` to end well, where all ``conditions`` hold.

    A condition: ``transformers>=4.38`` (with ``!`` before it: must not hold), ``available:peft``, or ``if:...``, a
    test that is not understood.
    """

    library: str
    dotted: str
    module: str
    conditions: tuple[str, ...] = ()


def read_needs(library: str, module: str, bit: int) -> tuple[Need, ...]:
    """What the import of a module asks for in one release; names that every release has are left out."""
    table = _table(library)
    found = []
    for entry in dict.fromkeys((library, module)):
        for dotted, where, conditions, bits in table.get(entry, ()):
            if int(bits, 16) & bit:
                found.append(Need(dotted.partition(".")[0], dotted, where, tuple(conditions)))
    return tuple(found)


@functools.cache
def _table(library: str) -> dict[str, Any]:
    try:
        packed = load_bytes(f"surface/{library}.needs")
    except OSError:
        return {}
    table: dict[str, Any] = json.loads(zlib.decompress(packed))
    return table
