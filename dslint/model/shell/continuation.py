"""Commands that fall apart: a lost ``\\``, a blank behind it, a comment in the middle."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.source import Span
from dslint.parse.shell import ShellDoc

if TYPE_CHECKING:
    from tree_sitter import Node

# A backslash inside these means something else, and a comment inside an array ends no command.
_OPAQUE = frozenset({"string", "raw_string", "ansi_c_string", "heredoc_body", "array", "comment", "ERROR"})
_FLAG_LINE = re.compile(r"^[ \t]*--[A-Za-z]", re.MULTILINE)
# What comes after a comment and belongs to the command above it: an option, a script.
_BELONGS = re.compile(r"[ \t]*(?:--?[A-Za-z]|\S*\.py(?![\w.]))")
_ASSIGNMENTS = re.compile(r"[ \t]*(?:\w+=\S*[ \t]+)+\\")
# A line that ends a statement on purpose, or is no command: elided output, usage text.
_ENDED = re.compile(r"(?:;|&|\||\(|\{|\.\.\.|…|\bthen|\bdo|\belse)[ \t]*$")


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
    def span(self) -> Span:
        """The text between the blanks at both ends."""
        body = self.text.strip()
        first = self.start + len(self.text) - len(self.text.lstrip())
        return Span(first, first + len(body))


@dataclass(frozen=True, slots=True)
class LostFlag:
    """A line of options that the shell runs as a command; ``above`` should have ended in a backslash."""

    flag: str
    span: Span
    above: Line


@dataclass(frozen=True, slots=True)
class Comments:
    """Comment lines inside a command that begins at ``first``; ``follows`` is the line that is cut off."""

    first: Line
    lines: tuple[Line, ...]
    follows: Line


class Layout:
    """The lines of a shell text and what stands in quotes, comments, heredocs and arrays."""

    def __init__(self, doc: ShellDoc) -> None:
        self.doc = doc
        at = 0
        self.lines: list[Line] = []
        for text in doc.text.split("\n"):
            self.lines.append(Line(doc.base + at, text.rstrip("\r")))
            at += len(text) + 1
        self._opaque = sorted(_spans(doc))
        self._starts = [s.start for s in self._opaque]

    def is_code(self, offset: int) -> bool:
        """Whether a backslash or ``#`` at this offset means what it means in a command."""
        at = bisect_right(self._starts, offset) - 1
        return at < 0 or offset >= self._opaque[at].end

    def continues(self, line: Line) -> bool:
        """The line ends in a backslash that joins it to the next."""
        tail = len(line.text) - len(line.text.rstrip("\\"))
        return tail % 2 == 1 and self.is_code(line.end - 1)


def _spans(doc: ShellDoc) -> Iterator[Span]:
    """Outermost opaque ranges: they do not overlap."""
    stack = [doc.tree.root_node]
    while stack:
        node = stack.pop()
        if node.type in _OPAQUE or node.is_missing:
            yield doc.local(node).shifted(doc.base)
        else:
            stack.extend(node.children)


def trailing_blanks(doc: ShellDoc) -> Iterator[Span]:
    """Blanks between a backslash and the end of the line, where the next line was meant to belong to the command."""
    if not re.search(r"\\[ \t]+\r?\n", doc.text):
        return
    layout = Layout(doc)
    for line, following in zip(layout.lines, layout.lines[1:], strict=False):
        match = re.search(r"(?<!\\)(?:\\\\)*\\([ \t]+)$", line.text)
        if not match or not following.text.strip() or following.text.lstrip().startswith("#"):
            continue
        if layout.is_code(line.start + match.start(1) - 1):
            yield Span(line.start + match.start(1), line.end)


def lost_flags(doc: ShellDoc) -> Iterator[LostFlag]:
    """Lines that begin with ``--option`` and are commands of their own."""
    if not _FLAG_LINE.search(doc.text) or re.search(r"^[ \t]*usage:", doc.text, re.MULTILINE | re.IGNORECASE):
        return
    layout = Layout(doc)
    starts = [line.start for line in layout.lines]
    for node in _flag_commands(doc.tree.root_node):
        span = doc.local(node).shifted(doc.base)
        row = bisect_right(starts, span.start) - 1
        line = layout.lines[row]
        if row == 0 or line.span.start != span.start:
            continue
        above = layout.lines[row - 1]
        if _was_command(above, node, doc):
            flag = re.match(r"--[\w-]+", doc.text[span.start - doc.base :])
            yield LostFlag(flag[0] if flag else "", line.span, above)


def _was_command(above: Line, node: Node, doc: ShellDoc) -> bool:
    """The line above ends a command that the options belonged to."""
    text = above.text.strip()
    if not text or text.startswith("#") or _ENDED.search(text) or text.endswith("\\"):
        return False
    # A blank or a comment behind the backslash is what is wrong there.
    if re.search(r"(?<!\\)\\[ \t]+(?:#.*)?$", above.text):
        return False
    while node.prev_named_sibling is None and node.parent is not None:
        node = node.parent
    before = node.prev_named_sibling
    while before is not None and before.type == "comment":
        before = before.prev_named_sibling
    if before is None or before.type not in ("command", "redirected_statement", "pipeline", "list"):
        return False
    return above.start <= doc.local(before).end + doc.base <= above.end and not before.has_error


def _flag_commands(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "command":
            name = node.child_by_field_name("name")
            if name is not None and name.text is not None and re.match(rb"--[A-Za-z]", name.text):
                yield node
        elif node.type not in _OPAQUE:
            stack.extend(reversed(node.named_children))


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
            prefix = all(_ASSIGNMENTS.fullmatch(line.text) for line in lines[begin : row + 1])
            if after >= len(lines) or not (_BELONGS.match(lines[after].text) or (prefix and lines[after].text.strip())):
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
