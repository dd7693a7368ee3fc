"""What a word processor, a chat or a web page puts into a command: dashes, quotation marks and blanks of no shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Span
from dslint.model.shell.layout import Layout, Line
from dslint.parse.shell import ShellDoc

LAUNCH = re.compile(
    r"(?:^|[\s/])(?:torchrun|deepspeed|accelerate[ \t]+launch|srun|mpirun|mpiexec|xtuner|swift[ \t]+\w+"
    r"|megatron[ \t]+\w+|llamafactory-cli|axolotl|python[\d.]*|torch\.distributed\.(?:run|launch))(?=[\s\\])"
)
_DASHES = r"\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
# Blanks that do not break, wide ones, and those that nobody sees at all.
_WIDE, _UNSEEN = r"\u00a0\u2002-\u200a\u202f\u3000", r"\u200b\u2060\ufeff"
# What a text must hold for each kind of mistake.
FIRST_SMART = rf"[{_WIDE}{_UNSEEN}{_DASHES}\u2018\u2019\u201c\u201d\u201e\u201f\uff02\uff07]"
FIRST_LOOSE = r"--[A-Za-z][\w.-]*[ \t]+=[ \t]"
_SMART = re.compile(FIRST_SMART)
_STRANGE = re.compile(rf"[ \t]*[{_WIDE}{_UNSEEN}](?:[ \t]*[{_WIDE}{_UNSEEN}])*[ \t]*")
_DASH = re.compile(rf"(?:^|(?<=\s))-?[{_DASHES}]+-?(?=[A-Za-z])")
_OPENS, _DOUBLE = r"(?:^|(?<=[\s=]))(?=.\S)", "\u201c\u201d\u201e\u201f\uff02"
_SINGLE = "\u2018\u2019\uff07"
# Both marks are wrong, or one of them: ``"$MODEL`` and a typographic mark. Blanks inside: a list of characters.
_QUOTED = re.compile(
    rf"{_OPENS}(?:[{_DOUBLE}][^\"'{_DOUBLE}]*[{_DOUBLE}\"]|\"[^\"{_DOUBLE}]*[{_DOUBLE}]"
    rf"|[{_SINGLE}][^\"'{_SINGLE}]*[{_SINGLE}']|'[^'{_SINGLE}]*[{_SINGLE}])(?<=\S.)(?=[\s\\;&|)]|$)"
)
_LOOSE = re.compile(r"^[ \t]*(--[A-Za-z][\w.-]*)[ \t]+=[ \t]+([^\s=\\][^\s\\]*)[ \t]*\\?[ \t]*", re.MULTILINE)


# Nobody writes a command of more lines.
_MAX_LINES = 200


@dataclass(frozen=True, slots=True)
class Smart:
    """A stretch with such characters, and what was meant. ``kind``: ``dash`` | ``quote`` | ``blank``."""

    kind: str
    span: Span
    text: str
    meant: str


def smart_characters(doc: ShellDoc) -> Iterator[Smart]:
    """Dashes before options, quotation marks around words and strange blanks, in the lines of launch commands."""
    if not _SMART.search(doc.text):
        return
    layout = Layout(doc)
    for row, line in enumerate(layout.lines):
        if not _SMART.search(line.text) or line.text.lstrip().startswith("#") or not _is_launch(layout, row):
            continue
        for match in _DASH.finditer(line.text):
            if layout.is_code(line.start + match.start()):
                rest = re.match(r"[\w-]+", line.text[match.end() :])
                meant = "-" if rest is not None and len(rest[0]) == 1 else "--"
                yield Smart("dash", _span(line, match), match[0], meant)
        for match in _QUOTED.finditer(line.text):
            if _is_quote(layout, line, match):
                mark = "'" if match[0][0] in "'" + _SINGLE else '"'
                yield Smart("quote", _span(line, match), match[0], f"{mark}{match[0][1:-1]}{mark}")
        yield from _blanks(layout, line)


def _blanks(layout: Layout, line: Line) -> Iterator[Smart]:
    """Strange blanks between words; those behind a backslash at the end are another mistake."""
    for match in _STRANGE.finditer(line.text):
        before, behind = line.text[: match.start()], line.text[match.end() :]
        at = line.start + match.start() + len(match[0]) - len(match[0].lstrip(" \t"))
        if before.endswith("\\") or not layout.is_code(at):
            continue
        is_seen = re.search(rf"[ \t{_WIDE}]", match[0]) is not None
        meant = "" if not behind.strip() or not is_seen else " " * len(match[0]) if not before.strip() else " "
        yield Smart("blank", _span(line, match), match[0], meant)


@dataclass(frozen=True, slots=True)
class Loose:
    """``--lr = 2e-5`` on a line of its own, below a launch command that it belongs to or has been cut off from."""

    option: str
    span: Span
    value: str


def loose_equals(doc: ShellDoc) -> Iterator[Loose]:
    """Lines that hold an option, a sign and a value, and stand below a launch command without an empty line between."""
    if not _LOOSE.search(doc.text):
        return
    layout = Layout(doc)
    for row, line in enumerate(layout.lines):
        match = _LOOSE.fullmatch(line.text)
        if match is None or not layout.is_code(line.start + match.start(1)):
            continue
        above = row
        while above > max(0, row - _MAX_LINES) and re.match(r"[ \t]*(?:--?[A-Za-z]|#)", layout.lines[above].text):
            above -= 1
        if LAUNCH.search(layout.lines[above].text) and not layout.lines[above].text.lstrip().startswith("#"):
            yield Loose(match[1], Span(line.start + match.start(1), line.start + match.end(2)), match[2])


def _is_quote(layout: Layout, line: Line, match: re.Match[str]) -> bool:
    """Marks inside a string that is whole are text of it."""
    if match[0][0] not in "\"'":
        return layout.is_code(line.start + match.start())
    mark = match[0][0]
    return line.text.count(mark) % 2 == 1 and line.text[: match.start()].count(mark) % 2 == 0


def _is_launch(layout: Layout, row: int) -> bool:
    first = row
    while first > max(0, row - _MAX_LINES) and re.search(r"(?<!\\)\\[ \t]*$", layout.lines[first - 1].text):
        first -= 1
    # The launcher stands at the begin of its command.
    above = "\n".join(line.text for line in layout.lines[first : min(row + 1, first + 8)])
    return LAUNCH.search(above) is not None


def _span(line: Line, match: re.Match[str]) -> Span:
    return Span(line.start + match.start(), line.start + match.end())
