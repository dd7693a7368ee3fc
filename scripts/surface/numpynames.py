"""The names of ``numpy`` itself: most come from C code or from its ``__getattr__``, and its stub lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator

# `[("bool", ...), ("float", ...)]` and the table into which their names go.
_LISTED = re.compile(
    r"_type_info = (\[.*?\])\n\n(?:(?!_type_info).)*?(__\w+__)(?:\.update\(\{| = \{)\s*\n?\s*n: ", re.S
)
_BOUND = re.compile(r"^(?:(?:class|def|type) )?([A-Za-z_]\w*)(?= ?[:=\[(])", re.M)
_IMPORTED = re.compile(r"^(?:from [\w.]+ )?import (\([^)]*\)|[^\n(]+)$", re.M)
_ONE = re.compile(r'__deprecated_attrs__\[["\'](\w+)["\']\]')
_FUTURE = re.compile(r"__future_scalars__ = \{([^}]*)\}")
_FIRST = re.compile(r'\(\s*"(\w+)",')


def stub_names(text: str) -> Iterator[str]:
    """What a stub binds, by its lines: its syntax may be newer than the Python that reads it."""
    yield from _BOUND.findall(text)
    for listed in _IMPORTED.findall(text):
        yield from (part.split()[-1] for part in listed.strip("()\n ").replace("\n", " ").split(",") if part.split())


def old_names(text: str) -> Iterator[str]:
    """The names that its ``__getattr__`` still gives, with a warning."""
    yield from _ONE.findall(text)
    for listed, table in _LISTED.findall(text):
        if table == "__deprecated_attrs__":
            yield from _FIRST.findall(listed)


def future_names(text: str) -> list[str]:
    """The names for which its ``__getattr__`` warns before it raises."""
    return [name for listed in _FUTURE.findall(text) for name in re.findall(r"\w+", listed)]
