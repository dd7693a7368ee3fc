"""Writes which names of other libraries the import of a library needs: those only that some release lacks."""

from __future__ import annotations

import functools
import json
import zlib

from dslint.model.surface import library_of, surface


def write(path: str, library: str, table: dict[str, dict[tuple[str, str, str], int]]) -> int:
    """Write the file; its size in bytes."""
    root = set(table.get(library, ()))
    data = {}
    for entry, found in sorted(table.items()):
        rows = [
            [dotted, module, conditions.split(" & ") if conditions else [], f"{releases:x}"]
            for (dotted, module, conditions), releases in sorted(found.items())
            if _lacking(dotted) and (entry == library or (dotted, module, conditions) not in root)
        ]
        if rows:
            data[entry] = rows
    content = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9)
    with open(path, "wb") as file:
        file.write(content)
    return len(content)


@functools.cache
def _lacking(dotted: str) -> bool:
    """Some release of the other library lacks the name."""
    history = surface(library_of(dotted) or "")
    if history is None:
        return False
    presence = history.presence(dotted)
    return len(presence.in_releases | presence.unknown_in) < len(history.releases)
