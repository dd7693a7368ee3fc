"""What other libraries must have for a module of a release to be imported."""

from __future__ import annotations

import heapq
import re
import sys
from collections.abc import Iterator

from surface.modules import Module
from surface.release import Release

# Modules of single models are no places where an import begins.
_NO_ENTRY = re.compile(r"^(transformers\.models\.|diffusers\.(pipelines|models)\.\w+\.)|\.(test|tests|commands|cli)\b")

# What no import of the rest loads: needs are read without it.
APART = re.compile(r"^(transformers\.models\.(?!auto\b)\w+|diffusers\.(pipelines|models)\.\w+)\.|\.(tests?|commands)\.")

Row = tuple[str, str, tuple[str, ...]]


def needs(release: Release) -> dict[str, list[Row]]:
    """By module in which an import begins: names of other libraries, the module that asks, the conditions."""
    root = release.modules.get(release.library)
    if root is None:
        return {}
    entries = {release.library}
    for entry in root.names.values():
        if entry.kind == "i":
            source, _, _ = release.resolve(entry.target)
            if source in release.modules and not _NO_ENTRY.search(source):
                entries.add(source)
    return {entry: sorted(set(_reached(release, entry))) for entry in sorted(entries)}


def _reached(release: Release, entry: str) -> Iterator[Row]:
    """What the import of a module reaches, by the way with the fewest conditions."""
    best: dict[str, tuple[str, ...]] = {}
    heap: list[tuple[int, tuple[str, ...], str]] = []
    for name in _with_parents(release, entry):
        heapq.heappush(heap, (0, (), name))
    while heap:
        _, conditions, name = heapq.heappop(heap)
        if name in best:
            continue
        best[name] = conditions
        module = release.modules[name]
        for need in module.needs:
            own = _all(conditions, need.conditions, release.library)
            if own is None:
                continue
            if need.dotted.split(".")[0].split(":")[0] == release.library:
                for target in _targets(release, need.dotted):
                    if target not in best:
                        heapq.heappush(heap, (len(own), own, target))
            else:
                dotted = need.dotted.replace(":", ".")
                library = dotted.split(".")[0]
                if library not in sys.stdlib_module_names and library != release.library:
                    yield dotted, name, own


def _all(before: tuple[str, ...], own: tuple[str, ...], library: str) -> tuple[str, ...] | None:
    """All conditions together; ``None`` where a failure is caught, or a test is not understood."""
    found = dict.fromkeys(before)
    for condition in own:
        if condition in ("try", "failed") or "if:" in condition:
            return None
        if condition == f"!available:{library}":
            return None
        found[condition] = None
    return tuple(found)


def _targets(release: Release, dotted: str) -> Iterator[str]:
    """The modules that an import statement loads."""
    source, _, name = dotted.partition(":")
    source = release.aliases.get(source, source)
    if source not in release.modules:
        return
    yield from _with_parents(release, source)
    if not name:
        return
    module = release.modules[source]
    if f"{source}.{name}" in release.modules and (name not in module.names or _lazy(module)):
        yield f"{source}.{name}"
    elif _lazy(module):
        where, _, _ = release.resolve(f"{source}:{name}")
        if where in release.modules:
            yield from _with_parents(release, where)


def _lazy(module: Module) -> bool:
    return module.lazy is not None


def _with_parents(release: Release, name: str) -> Iterator[str]:
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        parent = ".".join(parts[:length])
        if parent in release.modules:
            yield parent
