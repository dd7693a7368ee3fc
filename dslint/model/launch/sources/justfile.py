"""Recipes of a justfile: each line is a shell text of its own, or all of them are a script with a ``#!`` line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.source import SourceFile, Span
from dslint.model.firstlook import text_may_start
from dslint.model.launch.sources.snippet import Snippet, unset, value_at
from dslint.model.shell.pieces import Value

_ASSIGNMENT = re.compile(
    r"^(?P<export>export[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*:=[ \t]*"
    r"""(?:"(?P<double>[^"\\$`{]*)"|'(?P<single>[^'$`{]*)')?""",
    re.M,
)
# ``@name param="x":`` with the indented lines below.
_HEADER = re.compile(
    r"^@?[A-Za-z_][\w-]*(?:[ \t][^\n:=]*(?:=[^\n:]*)?)*:(?!=)[^\n]*\n"
    r"(?P<body>(?:[ \t]+[^\n]*\n?|[ \t]*\n)+)",
    re.M,
)
_FILLED = re.compile(r"\{\{[ \t]*(?P<name>[A-Za-z_]\w*)?[^{}]*\}\}")
_LINES = re.compile(r"(?:[^\n\\]|\\\n|\\.)+")


def justfile_snippets(source: SourceFile) -> Iterator[Snippet]:
    """The recipes that may launch something."""
    values: dict[str, Value | None] = {}
    exported: set[str] = set()
    for found in _ASSIGNMENT.finditer(source.text):
        text = found["double"] if found["double"] is not None else found["single"]
        span = Span(found.start(), found.end())
        values[found["name"]] = None if text is None else value_at(source, text, span)
        exported |= {found["name"]} if found["export"] else set()
    for recipe in _HEADER.finditer(source.text):
        start, body = recipe.start("body"), recipe["body"]
        if body.lstrip().startswith("#!"):
            parts = [(start, body)] if re.match(r"\s*#!.*\b(?:ba|z)?sh\b", body) else []
        else:
            parts = [(start + line.start(), line[0]) for line in _LINES.finditer(body)]
        for at, text in parts:
            shown = "\n".join(_shown(line, values) for line in text.split("\n"))
            if text_may_start(shown):
                yield Snippet(shown, at, None, values, frozenset(exported))


def _shown(line: str, values: dict[str, Value | None]) -> str:
    """The text for the shell, of the same length; ``@`` and ``-`` in front are for just."""
    text = _FILLED.sub(lambda found: _filled(found, values), line)
    text = " " * (len(line) - len(text)) + text
    head = re.match(r"[ \t]*[@-]*", text)
    return " " * head.end() + text[head.end() :] if head is not None else text


def _filled(found: re.Match[str], values: dict[str, Value | None]) -> str:
    """What stands for ``{{name}}``: a variable of the file, or one that nobody sets."""
    is_name = found["name"] in values and found[0].strip("{} \t") == found["name"]
    return "${" + found["name"] + "}" if is_name else unset(len(found[0]))
