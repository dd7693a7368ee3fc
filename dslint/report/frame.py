"""A few lines of source with the place underlined: line numbers, tabs, wide characters and long lines included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from dslint.core.source import Location
from dslint.report.options import ReportOptions
from dslint.report.place import one_line, visible

_TAB = 4
_BEFORE, _AFTER, _MAX_LINES = 1, 1, 4
_MIN_CROP = 24


def frame(location: Location, lines: Sequence[str], style: str, options: ReportOptions, gutter: int) -> Iterator[Text]:
    """The marked lines with one line around them; nothing when the text is not at hand.

    ``gutter`` is the width of the line numbers, ``style`` that of the underline and its label.
    """
    region = location.region
    if not 1 <= region.line <= len(lines):
        return
    bar = Text(f"{' ' * gutter} |", style="blue")
    width = max(_MIN_CROP, options.width - gutter - 3)
    last = min(max(region.line, region.end_line), len(lines))
    if last > region.line and region.end_column <= 1:
        last -= 1  # the range ends with the line break of the line above
    shown_last = min(last, region.line + _MAX_LINES - 1)
    yield bar
    below = min(len(lines), shown_last + _AFTER)
    if below > shown_last and not lines[below - 1]:
        below -= 1  # mostly the nothing after the last line break
    for number in range(max(1, region.line - _BEFORE), below + 1):
        line = lines[number - 1]
        marked = region.line <= number <= shown_last
        start = region.column - 1 if number == region.line else _indent(line)
        end = region.end_column - 1 if number == region.end_line else len(line.rstrip())
        text, at, length = _crop(line, start if marked else 0, end if marked else 0, width)
        # One piece a line: Rich would wrap source lines, and wrapped carets point nowhere.
        yield Text.assemble((f"{number:>{gutter}} |", "blue"), f" {text}" if text else "")
        if marked:
            label = location.label if number == shown_last else ""
            yield from _underline(bar, at, length, label, style, width)
    if shown_last < last:
        left = options.translate(f"({last - shown_last} more lines)")
        yield Text.assemble((f"{'.' * min(3, gutter):>{gutter}} |", "blue"), f" {left}")
    yield bar


def gutter_width(locations: Sequence[Location]) -> int:
    """Columns that the line numbers of these places need."""
    last = max((max(place.region.line, place.region.end_line) + _AFTER for place in locations), default=1)
    return max(2, len(str(last)))


def _underline(bar: Text, at: int, length: int, label: str, style: str, width: int) -> Iterator[Text]:
    marks = Text.assemble(bar, " " * (at + 1), ("^" * max(1, length), style))
    label = one_line(label)
    room = width - cell_len(label)
    if label and at + length + 1 <= room:
        yield marks.append(f" {label}", style)
        return
    yield marks
    if label:
        # Below, as far to the left as it takes to fit.
        yield Text.assemble(bar, " " * (max(0, min(at, room)) + 1), (label, style))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _expand(text: str) -> str:
    """Tabs as four spaces, other control characters spelled out: what is printed has the width that is counted."""
    return visible(text.replace("\t", " " * _TAB))


def _crop(line: str, start: int, end: int, width: int) -> tuple[str, int, int]:
    """The part of a line to print, and where (in terminal cells) the marked part begins and how long it is."""
    before, marked, after = line[:start], line[start : max(start, end)], line[max(start, end) :]
    # Cut by code points first: a minified config can be one line of many megabytes.
    head, before = ("…", before[-width:]) if len(before) > width else ("", before)
    before, marked, after = _expand(before), _expand(marked[: 2 * width]), _expand(after[:width])
    if cell_len(before) + cell_len(marked) > width:
        keep = max(8, width - min(cell_len(marked), width // 2) - 2)
        if cell_len(before) > keep:
            head, before = "…", before[-keep:]
    at = cell_len(head + before)
    text = head + before + marked + after
    if cell_len(text) > width:
        text = _fit(text, width - 1) + "…"
    return text.rstrip(), at, max(0, min(cell_len(marked), width - at))


def _fit(text: str, width: int) -> str:
    text = text[:width]
    while cell_len(text) > width:
        text = text[:-1]
    return text
