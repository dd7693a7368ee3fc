"""Lines of a recipe or notebook that change a shell which ends with the line: ``cd train``, ``export PORT=1``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from dslint.core.source import Span
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc

# The whole line, without what make and just read at its begin.
_CHANGES = re.compile(
    r"(?P<what>cd[ \t]+(?!-)[^\s;&|]+|export[ \t]+\w+=[^;&|]*|(?:source|\.)[ \t]+[^\s;&|]+"
    r"|conda[ \t]+activate[ \t]+[^\s;&|]+|[A-Za-z_]\w*=[^\s;&|]*)\s*(?:#.*)?"
)
_PREFIX = re.compile(r"[ \t]*[@+-]*[ \t]*")
_CELL = re.compile(r"[ \t]*!")
_ONE_SHELL = re.compile(r"^\.ONESHELL|^set\s+shell\b|^[ \t]+#!", re.MULTILINE)


def lonely_lines(doc: LaunchDoc, command: LaunchCommand) -> Iterator[Span]:
    """Yield the lines before a command that are meant for it and that a shell of their own reads."""
    text, at = doc.source.text, command.location.span.start
    kind = _kind(doc.source.path)
    if not kind or command.location.path != doc.source.path or (kind == "recipe" and _ONE_SHELL.search(text)):
        return
    begin = text.rfind("\n", 0, at) + 1
    while begin > 0:
        last = text.rfind("\n", 0, begin - 1) + 1
        line = text[last : begin - 1]
        if kind == "recipe" and line.strip() and not line[0].isspace():
            return
        found = _changing(line, kind)
        is_continued = last > 0 and text[:last].rstrip("\r\n").endswith("\\")
        if found is not None and not is_continued:
            yield Span(last + found.start("what"), last + found.end("what"))
        begin = last


def _changing(line: str, kind: str) -> re.Match[str] | None:
    head = (_PREFIX if kind == "recipe" else _CELL).match(line)
    return _CHANGES.fullmatch(line, head.end()) if head is not None else None


def _kind(path: str) -> str:
    name = posixpath.basename(path).lower()
    if name.endswith(".ipynb"):
        return "notebook"
    return "recipe" if name in ("makefile", "gnumakefile", "justfile", ".justfile") or name.endswith(".mk") else ""
