"""What Python has taken out of its standard library (``schemas/standard_library.json``)."""

from __future__ import annotations

from functools import cache
from typing import Any

from dslint.core.schemafiles import load_file

# setuptools goes on giving this one, and torch requires setuptools on every Python without it.
_STILL_THERE = frozenset({"distutils"})


@cache
def _table() -> dict[str, Any]:
    return load_file("standard_library.json")


@cache
def modules_with_removals() -> frozenset[str]:
    """The top modules that went, or of which names went."""
    names = (*_table()["modules"], *_table()["names"])
    return frozenset(name.partition(".")[0] for name in names) - _STILL_THERE


def removed_in(dotted: str) -> tuple[str, str] | None:
    """The part of a name that is gone, and the first Python without it; ``None`` for what is there to this day."""
    parts = dotted.split(".")
    if parts[0] in _STILL_THERE:
        return None
    gone = _table()["modules"].get(parts[0])
    if gone is not None:
        return parts[0], gone
    for end in range(2, len(parts) + 1):
        name = ".".join(parts[:end])
        if name in _table()["names"]:
            return name, _table()["names"][name]
    return None


def is_at_least(python: str, release: str) -> bool:
    """``3.12`` is at least ``3.9``."""
    return int(python.partition(".")[2]) >= int(release.partition(".")[2])
