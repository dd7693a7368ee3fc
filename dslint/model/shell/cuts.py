"""Commands that a comment cuts in two: below a line that ends in ``\\``, or behind the ``\\``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Span
from dslint.model.shell.layout import ASSIGNMENTS, Layout, Line, belongs
from dslint.parse.shell import ShellDoc

# What a text must hold for a comment to cut a command.
FIRST_COMMENT = r"\\(?:\r?\n[ \t]*|[ \t]+)#"
# Behind an operator bash reads on by itself, over comments and line ends.
_OPERATOR = re.compile(r"(?:&&|\|\|?|\bdo|\bthen|\belse|[({;])[ \t]*\\$")


@dataclass(frozen=True, slots=True)
class Comments:
    """Comment lines inside a command that begins at ``first``; ``follows`` is the line that is cut off."""

    first: Line
    lines: tuple[Line, ...]
    follows: Line


def comments_inside(doc: ShellDoc) -> Iterator[Comments]:
    """Whole-line comments after a line that ends in a backslash, with more of the command below them."""
    if not doc.comments or not re.search(r"\\\r?\n[ \t]*#", doc.text):
        return
    layout = Layout(doc)
    row = 0
    while row < len(layout.lines):
        broken = _broken_by_comments(layout, row)
        if broken is not None:
            yield broken[0]
        row = broken[1] if broken else _chain_end(layout, row)


def _chain_end(layout: Layout, row: int) -> int:
    while row < len(layout.lines) and layout.continues(layout.lines[row]):
        row += 1
    return row + 1


def _broken_by_comments(layout: Layout, row: int) -> tuple[Comments, int] | None:
    """The command that begins at ``row``, when comments cut it, and the row after it."""
    lines = layout.lines
    first, begin = lines[row], row
    comments: list[Line] = []
    follows: Line | None = None
    while row < len(lines) and layout.continues(lines[row]):
        after = row + 1
        while after < len(lines) and lines[after].text.lstrip().startswith("#"):
            after += 1
        if after > row + 1:
            if _OPERATOR.search(lines[row].text):
                row = after
                continue
            prefix = all(ASSIGNMENTS.fullmatch(line.text) for line in lines[begin : row + 1])
            if after >= len(lines) or not (belongs(lines[after], first) or (prefix and lines[after].text.strip())):
                break
            comments += lines[row + 1 : after]
            follows = follows or lines[after]
        row = after
    if follows is None:
        return None
    return Comments(first, tuple(comments), follows), row + 1


def comments_behind(doc: ShellDoc) -> Iterator[Span]:
    """``\\ # text``: the backslash escapes the blank, so the line is not continued."""
    if not re.search(r"\\[ \t]+#", doc.text):
        return
    layout = Layout(doc)
    for line, following in zip(layout.lines, layout.lines[1:], strict=False):
        match = re.search(r"(?:^|[ \t])\\[ \t]+#.*$", line.text)
        if match is None or not following.text.strip() or following.text.lstrip().startswith("#"):
            continue
        at = line.start + line.text.index("\\", match.start())
        if layout.is_code(at):
            yield Span(at, line.end)
