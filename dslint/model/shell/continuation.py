"""Commands that fall apart because a line end is not escaped: a lost ``\\``, a blank behind it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dslint.core.source import Span
from dslint.model.shell.layout import ASSIGNMENTS, OPAQUE, Layout, Line, belongs
from dslint.parse.shell import ShellDoc

if TYPE_CHECKING:
    from tree_sitter import Node

_FLAG_LINE = re.compile(r"^[ \t]*--?[A-Za-z]", re.MULTILINE)
# What a text must hold for each kind of mistake. A lost flag stands below a line that does not end in a backslash, or
# below a comment, which may.
FIRST_LOST = r"\n(?<!\\\n)(?<!\\\r\n)[^\S\n]*--?[A-Za-z]|#[^\n]*\\\r?\n[^\S\n]*--?[A-Za-z]"
FIRST_BREAK = r"\\\r?\n[ \t]*(?:\r?\n|$)"
_LONG = re.compile(r"--[A-Za-z][\w.-]*")
# ``-n 8``; listings (``-rw-r--r--``) and differences (``-import``) begin with a dash too.
_SHORT = re.compile(r"-[A-Za-z]{1,2}(?![\w-])")
_LAUNCH = re.compile(r"\b(?:python[\d.]*|torchrun|deepspeed|accelerate|srun|mpirun|mpiexec|xtuner|swift)\b")
# A line that ends a statement on purpose, or is no command: elided output, usage text.
_ENDED = re.compile(r"(?:;|&|\||\(|\{|\.\.\.|…|\bthen|\bdo|\belse)[ \t]*$")
_ELIDED = re.compile(r"\.\.\.|…|\[\S[^\]$]*\]")
# ``--model-dir <string> (required) where it lies``: a list of options.
_LISTED = re.compile(r"^--?[\w-]+[ \t]+(?:<[^>]*>[ \t]+)?\(")
# Blanks of web pages and word processors escape the backslash like any other.
_BLANKS = r"[ \t\u00a0\u3000]"
FIRST_BLANK = rf"\\{_BLANKS}+(?:\r?\n|$)"
_TRAILING = re.compile(rf"(?<!\\)(?:\\\\)*\\({_BLANKS}+)$")
_BROKEN_ABOVE = re.compile(rf"(?<!\\)\\{_BLANKS}+(?:#.*)?$")


@dataclass(frozen=True, slots=True)
class LostFlag:
    """A line of options that the shell runs as a command of its own.

    ``above`` is the line that ends the command they belong to. ``between``: ``""`` when it should have ended in a
    backslash, ``"comment"`` or ``"blank"`` when such a line stands between. ``more`` are the lines below that lost it
    in the same command. ``is_laid_out``: no line of the whole ends in a backslash, as texts divide commands for
    reading.
    """

    flag: str
    span: Span
    above: Line
    between: str = ""
    gap: Span | None = None
    more: tuple[LostFlag, ...] = ()
    is_laid_out: bool = False


@dataclass(frozen=True, slots=True)
class TrailingBlanks:
    """Blanks behind the backslash at the end of a line; ``joins``: the next line was meant to follow."""

    backslash: int
    span: Span
    joins: bool


def trailing_blanks(doc: ShellDoc) -> Iterator[TrailingBlanks]:
    """Every ``\\`` at the end of a line that escapes a blank instead of the line end."""
    if not re.search(FIRST_BLANK, doc.text):
        return
    layout = Layout(doc)
    for row, line in enumerate(layout.lines):
        match = _TRAILING.search(line.text)
        if match is None or not layout.is_code(line.start + match.start(1) - 1):
            continue
        following = layout.lines[row + 1] if row + 1 < len(layout.lines) else Line(line.end, "")
        if not line.text[: match.start(1) - 1].strip() or following.text.lstrip().startswith("("):
            continue
        start = line.start + match.start(1)
        sets = ASSIGNMENTS.fullmatch(line.text) is not None and bool(following.text.strip())
        yield TrailingBlanks(start - 1, Span(start, line.end), sets or belongs(following, layout.first_of(row)))


def lost_flags(doc: ShellDoc, over_comments: bool = False) -> Iterator[LostFlag]:
    """Lines that begin with an option and are commands of their own; ``over_comments``: also below a comment."""
    if not re.search(FIRST_LOST, doc.text) or re.search(r"^[ \t]*usage:", doc.text, re.MULTILINE | re.IGNORECASE):
        return
    layout = Layout(doc)
    starts = [line.start for line in layout.lines]
    groups: list[list[LostFlag]] = []
    for node in _flag_commands(doc.root):
        span = doc.local(node).shifted(doc.base)
        row = bisect_right(starts, span.start) - 1
        if row == 0 or layout.lines[row].span.start != span.start:
            continue
        lost = _lost(layout, row, node, over_comments)
        if lost is not None and groups and not lost[0].between and lost[1] == groups[-1][-1].span.start:
            groups[-1].append(lost[0])
        elif lost is not None:
            groups.append([lost[0]])
    for first, *more in groups:
        rows = [bisect_right(starts, at.start) - 1 for at in (first.above, (more or [first])[-1].span)]
        whole = layout.lines[rows[0] : rows[1] + 1]
        laid_out = not any(line.text.rstrip().endswith("\\") for line in (layout.first_of(rows[0]), *whole))
        yield replace(first, more=tuple(more), is_laid_out=laid_out)


def _lost(layout: Layout, row: int, node: Node, over_comments: bool) -> tuple[LostFlag, int] | None:
    line, at, between = layout.lines[row], row - 1, ""
    text = line.text.strip()
    flag = _LONG.match(text) or _SHORT.match(text)
    while at > 0 and over_comments and layout.lines[at].text.lstrip().startswith("#"):
        at, between = at - 1, "comment"
    while at > 0 and not between and not layout.lines[at].text.strip() and layout.continues(layout.lines[at - 1]):
        at, between = at - 1, "blank"
    above = layout.lines[at]
    gap = Span(above.end + 1, line.start) if between else None
    before = _command_before(node, layout.doc)
    if flag is None or before is None or not _was_command(above, before, layout.doc, between) or _LISTED.search(text):
        return None
    if _is_elided(layout, row):
        return None
    if not flag[0].startswith("--") and not _LAUNCH.search(layout.doc.raw(before)):
        return None
    return LostFlag(flag[0], line.span, above, between, gap), layout.doc.local(before).start + layout.doc.base


def _is_elided(layout: Layout, row: int) -> bool:
    """A line of the block is ``...`` or ``[more options]``: the text shows the form of a command, not one to run."""
    while row > 0 and layout.lines[row - 1].text.strip():
        row -= 1
    while row < len(layout.lines) and (text := layout.lines[row].text.strip().rstrip("\\").rstrip()):
        if _ELIDED.fullmatch(text):
            return True
        row += 1
    return False


def _command_before(node: Node, doc: ShellDoc) -> Node | None:
    while node.prev_named_sibling is None and node.parent is not None:
        node = node.parent
    before = node.prev_named_sibling
    while before is not None and before.type == "comment":
        before = before.prev_named_sibling
    # ``--lr=1`` on a line of its own looks like an assignment to the grammar.
    is_flag = before is not None and before.type == "variable_assignment" and doc.raw(before).startswith("-")
    wanted = ("command", "redirected_statement", "pipeline", "list")
    return before if before is not None and (is_flag or before.type in wanted) else None


def _was_command(above: Line, before: Node, doc: ShellDoc, between: str) -> bool:
    """The line ``above`` ends the command ``before``, to which the options belonged."""
    text = above.text.strip()
    if between == "blank":
        text = text.removesuffix("\\").rstrip()
    if not text or text.startswith("#") or _ENDED.search(text) or text.endswith("\\"):
        return False
    # A blank or a comment behind the backslash is what is wrong there.
    if _BROKEN_ABOVE.search(above.text):
        return False
    end = doc.local(before).end + doc.base
    return above.start <= end <= above.end + 1 and not before.has_error


def _flag_commands(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type in ("command", "variable_assignment"):
            name = node.child_by_field_name("name") or (node.children[0] if node.children else None)
            if name is not None and name.text is not None and re.match(rb"--?[A-Za-z]", name.text):
                yield node
        elif node.type not in OPAQUE:
            stack.extend(reversed(node.named_children))


@dataclass(frozen=True, slots=True)
class Break:
    """A ``\\`` at ``backslash`` that joins its line to an empty one.

    ``gap`` are the empty lines. ``follows`` is the line below them when it was meant as the script of the launcher
    above; ``None`` when the command ends here.
    """

    backslash: int
    gap: Span
    follows: Line | None


_PYTHON_FILE = re.compile(r"[\w./-]+\.py(?=\s|$)")


def breaks(doc: ShellDoc) -> Iterator[Break]:
    """Launch commands whose last ``\\`` stands above an empty line, or at the end of the text."""
    if not re.search(FIRST_BREAK, doc.text):
        return
    layout = Layout(doc)
    lines = layout.lines
    for row, line in enumerate(lines):
        end = row + 1
        while end < len(lines) and not lines[end].text.strip():
            end += 1
        if end == row + 1 or not _is_open(layout, line, end < len(lines)) or not line.text.rstrip("\\").strip():
            continue
        first = row
        while first > 0 and layout.continues(lines[first - 1]):
            first -= 1
        above = "\n".join(part.text for part in lines[first : row + 1])
        if not _LAUNCH.search(above) or lines[first].text.lstrip().startswith("#"):
            continue
        following = lines[end] if end < len(lines) else None
        if following is not None and _FLAG_LINE.match(following.text):
            continue  # lost flags
        lost = following is not None and ".py" not in above and _PYTHON_FILE.match(following.text.strip())
        gap = Span(lines[row + 1].start, following.start if following is not None else lines[end - 1].end)
        yield Break(line.end - 1, gap, following if lost else None)


def _is_open(layout: Layout, line: Line, is_followed: bool) -> bool:
    """The line ends in a backslash of its own; at the end of a text the grammar takes it for an error."""
    if layout.continues(line) or is_followed or not re.search(r"(?<!\\)(?:\\\\)*\\$", line.text):
        return layout.continues(line)
    return layout.is_code(line.start + len(line.text.rstrip("\\").rstrip()) - 1)
