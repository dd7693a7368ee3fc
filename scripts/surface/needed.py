"""Writes which names of other libraries the import of a library needs: those only that some release lacks."""

from __future__ import annotations

import functools
import json
import zlib

from dslint.model.surface import surface
from surface.index import PROJECTS

# The libraries that are asked for and whose releases are known.
_FOLLOWED = {
    *PROJECTS, "kernels", "liger_kernel", "optimum", "PIL", "protobuf", "setuptools", "torchao",
}  # fmt: skip


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


def write_minimums(path: str, library: str, releases: list[str], asked: dict[tuple[str, ...], int]) -> None:
    """Write which releases of others the code of a library asks for: each row with the releases that have it.

    ``[since, until]``: from one release on and before the other, which is empty where the newest still asks.
    """
    try:
        with open(path) as file:
            table = json.load(file)
    except FileNotFoundError:
        table = {}
    kept = sorted((row, bits) for row, bits in asked.items() if row[1] in _FOLLOWED)
    table[library] = [[*row, _runs(releases, bits)] for row, bits in kept]
    lines = [
        f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in sorted(table.items())
    ]
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def _runs(releases: list[str], bits: int) -> list[list[str]]:
    """Where a row begins and ends, again and again."""
    runs: list[list[str]] = []
    was = False
    for place, release in enumerate(releases):
        now = bool(bits >> place & 1)
        if now and not was:
            runs.append([release, ""])
        elif was and not now:
            runs[-1][1] = release
        was = now
    return runs


@functools.cache
def _lacking(dotted: str) -> bool:
    """Some release of the other library lacks the name."""
    history = surface(dotted.partition(".")[0])
    if history is None:
        return False
    presence = history.presence(dotted)
    return len(presence.in_releases | presence.unknown_in) < len(history.releases)
