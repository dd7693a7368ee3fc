"""The lines of a shell text: where they stand, which are joined, and what belongs to the command above."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dslint.core.source import Span
from dslint.parse.shell import ShellDoc

# A backslash inside these means something else, and a comment inside an array ends no command.
OPAQUE = frozenset({"string", "raw_string", "ansi_c_string", "heredoc_body", "array", "comment", "ERROR"})
# An option, a script, a pipe, a redirection, a setting of a dotted name: no command begins like this.
_BELONGS = re.compile(r"--?[A-Za-z]|\S*\.py(?![\w.])|\|(?!\|)|\d*>|&>|[\w-]+\.[\w.-]+=")
# A line that consists of variables: more arguments.
_VARIABLES = re.compile(r"""(?:["']?\$(?:\w+|[@*]|\{[^}]*\})["']?[ \t]*)+\\?[ \t]*""")
# ``NNODES=2 \``: variables of the command on the next line.
ASSIGNMENTS = re.compile(r"[ \t]*(?:\w+=\S*[ \t]+)+\\[ \t]*")
_KEYWORD = re.compile(r"(?:fi|done|esac|else|elif|then|do|if|for|while|case|function)\b|[})]")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the fragment, without its line end; ``start`` is its offset in the host file."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """Offset of its line end in the host file."""
        return self.start + len(self.text)

    @property
    def indent(self) -> int:
        """How many blanks it begins with."""
        return len(self.text) - len(self.text.lstrip())

    @property
    def span(self) -> Span:
        """The text between the blanks at both ends."""
        body = self.text.strip()
        return Span(self.start + self.indent, self.start + self.indent + len(body))


class Layout:
    """The lines of a shell text and what stands in quotes, comments, heredocs and arrays."""

    def __init__(self, doc: ShellDoc) -> None:
        self.doc = doc
        at = 0
        self.lines: list[Line] = []
        for text in doc.text.split("\n"):
            self.lines.append(Line(doc.base + at, text.rstrip("\r")))
            at += len(text) + 1

    @cached_property
    def _opaque(self) -> list[Span]:
        return sorted(_spans(self.doc))

    @cached_property
    def _starts(self) -> list[int]:
        return [s.start for s in self._opaque]

    def is_code(self, offset: int) -> bool:
        """Whether a backslash or ``#`` at this offset means what it means in a command."""
        at = bisect_right(self._starts, offset) - 1
        return at < 0 or offset >= self._opaque[at].end

    def continues(self, line: Line) -> bool:
        """The line ends in a backslash that joins it to the next."""
        tail = len(line.text) - len(line.text.rstrip("\\"))
        return tail % 2 == 1 and self.is_code(line.end - 1)

    def first_of(self, row: int) -> Line:
        """The line on which the command of this line begins, blanks behind a backslash overlooked."""
        while row > 0 and re.search(r"(?<!\\)\\[ \t]*$", self.lines[row - 1].text):
            row -= 1
        return self.lines[row]


def belongs(line: Line, first: Line) -> bool:
    """The line was meant as a part of the command that begins at ``first``."""
    text = line.text.strip()
    if _BELONGS.match(text):
        return True
    if not text or text.startswith("#") or _KEYWORD.match(text):
        return False
    return line.indent > first.indent or _VARIABLES.fullmatch(text) is not None


def _spans(doc: ShellDoc) -> Iterator[Span]:
    """Outermost opaque ranges: they do not overlap."""
    stack = [doc.root]
    while stack:
        node = stack.pop()
        if node.type in OPAQUE or node.is_missing:
            yield doc.local(node).shifted(doc.base)
        else:
            stack.extend(node.children)
