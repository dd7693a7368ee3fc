"""Recipes of a Makefile: each logical line is a shell text of its own, in which make has filled in its variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.source import SourceFile, Span
from dslint.model.firstlook import text_may_start
from dslint.model.launch.sources.snippet import Snippet, unset, value_at
from dslint.model.shell.pieces import Value

_ASSIGNMENT = re.compile(
    r"(?:override\s+)?(?P<export>export\s+)?(?P<name>[A-Za-z_]\w*)\s*(?P<op>::?:?=|\?=|\+=|=)[ \t]*(?P<value>.*)",
    re.DOTALL,
)
_EXPORT = re.compile(r"export(?:\s+(?P<names>[\w\s]+))?$")
_REFERENCE = re.compile(r"\$[({](?P<name>[A-Za-z_]\w*)[)}]")
# ``$(NAME)``, ``$@`` and ``$N``, which make replaces; ``$$`` is left to the shell; functions (``$(shell ...)``) stay.
_IN_RECIPE = re.compile(r"\$\$|\$\((?P<name>[A-Za-z_]\w*)\)|\$(?P<short>[@<^+*?%|A-Za-z])")
_DEPTH = 10


def makefile_snippets(source: SourceFile) -> Iterator[Snippet]:
    """The recipes that may launch something."""
    variables: dict[str, str] = {}
    places: dict[str, Span] = {}
    exported: set[str] = set()
    lines: list[tuple[int, str]] = []
    for start, line in _logical_lines(source.text):
        if line.startswith("\t"):
            lines.append((start, line))
            continue
        text = line.strip()
        export = _EXPORT.match(text)
        found = _ASSIGNMENT.match(text)
        if found is not None:
            name, value = found["name"], re.sub(r"\s*\\\n\s*", " ", found["value"]).partition(" #")[0].strip()
            if found["op"] == "?=" and name in variables:
                continue
            variables[name] = f"{variables[name]} {value}" if found["op"] == "+=" and name in variables else value
            places[name] = Span(start, start + len(line.rstrip("\n")))
            exported |= {name} if found["export"] else set()
        elif export is not None:
            exported |= set((export["names"] or " ".join(variables)).split())
    values = {name: _value(source, name, variables, places[name]) for name in variables}
    for start, line in lines:
        if text_may_start(line):
            yield Snippet(_recipe(line, variables), start, None, values, frozenset(exported))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    start = at = 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        if not line.rstrip("\r\n").endswith("\\"):
            yield start, text[start:at]
            start = at
    if start < at:
        yield start, text[start:at]


def _value(source: SourceFile, name: str, variables: dict[str, str], span: Span) -> Value | None:
    """What make puts in; ``None`` where functions, the environment or quotes decide."""
    text = f"$({name})"
    for _ in range(_DEPTH):
        expanded = _REFERENCE.sub(lambda m: variables.get(m["name"], m[0]), text)
        if expanded == text:
            break
        text = expanded
    return None if set(text) & set("$\"'`\\*?") else value_at(source, text, span)


def _recipe(line: str, variables: dict[str, str]) -> str:
    """The text for the shell, of the same length line by line: what stands behind a ``$$`` keeps its offset."""
    done = []
    for part in line.split("\n"):
        text = _IN_RECIPE.sub(lambda m: _replaced(m, variables), part)
        done.append(" " * (len(part) - len(text)) + text)
    text = "\n".join(done)
    head = re.match(r"[\s@+-]*", text)
    return " " * head.end() + text[head.end() :] if head is not None else text


def _replaced(found: re.Match[str], variables: dict[str, str]) -> str:
    if found[0] == "$$":
        return "$"
    if found["short"] is not None:
        return unset(2)
    return "${" + found["name"] + "}" if found["name"] in variables else unset(len(found[0]))
