"""A first look at what a script imports of its project: may something of it wait for other ranks, or start them?

By the bytes of the modules alone: no tree is built for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dslint.rules.markers import starts, waits

if TYPE_CHECKING:
    from dslint.python.project import Project

_FROM = re.compile(rb"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*(?:\\\r?\n[^\n#]*)*)", re.MULTILINE)
_IMPORT = re.compile(rb"^[ \t]*import[ \t]+([^\n#;]+)", re.MULTILINE)
_NAME = re.compile(rb"[\w.]+")
_COMMENT = re.compile(rb"#[^\n]*")
# So many modules are looked at, and through so many that import each other.
_MOST, _DEPTH = 60, 3


def lead_to_waits(project: Project, path: str, raw: bytes) -> bool:
    """Return whether a module that a script imports, or one behind it, calls what waits for other ranks."""
    return _lead_to(project, path, raw, waits)


def lead_to_starts(project: Project, path: str, raw: bytes) -> bool:
    """Return whether a module that a script imports, or one behind it, starts what several ranks do together."""
    return _lead_to(project, path, raw, starts)


def _lead_to(project: Project, path: str, raw: bytes, is_wanted: Callable[[bytes], bool]) -> bool:
    asker = ("script", path)
    pending, seen = [(path, raw, 0)], {path}
    while pending and len(seen) < _MOST:
        importer, text, depth = pending.pop(0)
        for name in _imported(text):
            found = project.module(asker, importer, name)
            if not found or found in seen:
                continue
            seen.add(found)
            inner = project.text(asker, found)
            if inner is not None and is_wanted(inner):
                return True
            if inner is not None and depth + 1 < _DEPTH:
                pending.append((found, inner, depth + 1))
    return False


def _imported(raw: bytes) -> Iterator[str]:
    """Yield the modules that a text may import, and what `from` imports of them as modules of their own."""
    for match in _FROM.finditer(raw):
        module = match[1].decode("utf-8", "replace")
        yield module
        glue = "" if module.endswith(".") else "."
        for name in _NAME.findall(_COMMENT.sub(b"", match[2])):
            if name != b"as":
                yield f"{module}{glue}{name.decode('utf-8', 'replace')}"
    for match in _IMPORT.finditer(raw):
        for item in match[1].split(b","):
            name = item.split()[0] if item.split() else b""
            if name:
                yield name.decode("utf-8", "replace")
