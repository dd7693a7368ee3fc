"""Commands in notebooks: ``!torchrun``, ``%%bash``, with the variables and the directory that cells before set."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile, Span
from dslint.model.firstlook import text_may_start
from dslint.model.launch.sources.snippet import Snippet, unset, value_at
from dslint.model.shell.pieces import Value
from dslint.parse.notebook import cell_texts

_CELL = re.compile(r"\s*(?:%%(?:bash|sh|script[ \t]+(?:ba|z)?sh)\b[^\n]*|%sh\b)")
_LINE = re.compile(r"[ \t]*!!?(?=[^=\s!])(?P<text>(?:[^\n\\]|\\\n|\\.)*)")
_FOLDER = re.compile(r"[ \t]*(?:%cd|cd|os\.chdir\()[ \t]*[\"']?(?P<path>[^\s\"')]+)")
_SETS = re.compile(
    r"""[ \t]*(?:%(?:set_)?env[ \t]+(?P<name>\w+)(?:=|[ \t]+)(?P<text>\S*)"""
    r"""|os\.environ\[["'](?P<key>\w+)["']\][ \t]*=[ \t]*(?:["'](?P<value>[^"']*)["'])?)"""
)
# ``{name}``, which IPython fills in.
_FILLED = re.compile(r"(?<!\$)\{[A-Za-z_][^{}\n]*\}")


def notebook_snippets(source: SourceFile) -> Iterator[Snippet]:
    """The lines and cells that a shell runs, in the order of the cells."""
    variables: dict[str, Value | None] = {}
    cwd: Fact[str] = absent()
    for start, cell in cell_texts(source):
        magic = _CELL.match(cell)
        if magic is not None:
            text = " " * magic.end() + cell[magic.end() :]
            if text_may_start(text):
                yield Snippet(text, start, None, dict(variables), frozenset(variables), True, cwd)
            continue
        at = 0
        while at < len(cell):
            end = cell.find("\n", at) + 1 or len(cell)
            found = _LINE.match(cell, at)
            if found is not None:
                text = _FILLED.sub(lambda m: unset(len(m[0])), found["text"])
                if text_may_start(text):
                    base = start + found.start("text")
                    yield Snippet(text, base, None, dict(variables), frozenset(variables), True, cwd)
                end = max(found.end() + 1, end)
            elif (folder := _FOLDER.match(cell, at)) is not None:
                cwd = _moved(cwd, folder["path"])
            elif (given := _SETS.match(cell, at)) is not None:
                text = given["text"] if given["name"] else given["value"]
                is_plain = text is not None and not set(text) & set("${}")
                span = Span(start + given.start(), start + given.end())
                variables[given["name"] or given["key"]] = value_at(source, text, span) if is_plain else None
            at = end


def _moved(cwd: Fact[str], path: str) -> Fact[str]:
    if set(path) & set("${}~*") or cwd.is_unknown:
        return unknown("a cell computes the directory")
    return known(posixpath.normpath(posixpath.join(cwd.get_or(""), path)))
