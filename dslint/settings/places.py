"""The line of a key in a TOML text: the parser of the standard library gives values without positions."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_KEY})\s*\]")
_ENTRY = re.compile(rf"\s*({_KEY})\s*=")
_PARTS = re.compile(_PART)


def _split(key: str) -> tuple[str, ...]:
    return tuple(p[1:-1] if p[0] in "\"'" else p for p in _PARTS.findall(key))


def find_line(text: str, key: Sequence[str]) -> int | None:
    """1-based line of the key (``("tool", "dslint", "select")``), else of the nearest table around it.

    Good enough for a message: a key inside an inline table or a multi-line value gives the line of its parent.
    """
    wanted = tuple(key)
    table: tuple[str, ...] = ()
    best, best_line = 0, None
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        entry = None if header else _ENTRY.match(line)
        if header:
            at = table = _split(header[1])
        elif entry:
            at = (*table, *_split(entry[1]))
        else:
            continue
        if len(at) > best and wanted[: len(at)] == at:
            best, best_line = len(at), number
    return best_line
