"""Statements and commands that go over several lines: a directive on any of them holds for all."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Callable
from typing import TypeAlias

# From the first and last line of a finding to those of the statement or command that holds it.
LogicalLines: TypeAlias = Callable[[int, int], tuple[int, int]]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SILENT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
)
# A blank after the backslash ends the command for the shell, but not for the one who wrote it.
_CONTINUED = re.compile(r"(?:\\|\||&&)[ \t\r]*$")


def physical_lines(start: int, end: int) -> tuple[int, int]:
    """The lines of the finding themselves: for data files."""
    return start, end


def python_statements(text: str) -> LogicalLines:
    """Logical lines of Python: a simple statement, or the header of a compound one."""
    ranges: dict[int, tuple[int, int]] = {}
    first: int | None = None
    try:
        for token in tokenize.generate_tokens(iter(_LINE.findall(text)).__next__):
            if token.type in _SILENT:
                continue
            if first is None:
                first = token.start[0]
            if token.type == tokenize.NEWLINE:
                last = token.start[0]
                ranges.update(dict.fromkeys(range(first, last + 1), (first, last)))
                first = None
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        pass  # what came before the mistake still counts
    # A finding on a loop spans its body: only the header is meant.
    return lambda start, end: ranges.get(start, (start, end))


def shell_commands(text: str) -> LogicalLines:
    """Shell lines that are joined by a backslash, a pipe or ``&&`` at their end."""
    ranges: dict[int, tuple[int, int]] = {}
    first = 1
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        is_comment = line.lstrip().startswith("#")
        if (is_comment and number > first) or (not is_comment and _CONTINUED.search(line) and number < len(lines)):
            continue
        ranges.update(dict.fromkeys(range(first, number + 1), (first, number)))
        first = number + 1

    def around(start: int, end: int) -> tuple[int, int]:
        return min(ranges.get(start, (start, end))[0], start), max(ranges.get(end, (start, end))[1], end)

    return around
