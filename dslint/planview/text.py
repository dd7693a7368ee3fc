"""The plans for people: one tree for each command, with the places at the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from dslint.core.source import OUTSIDE
from dslint.planview.describe import View
from dslint.planview.rows import Row, headline, is_brief, places_text, rows_of
from dslint.report.options import ReportOptions
from dslint.report.place import one_line

_LABEL = 9
# Columns that a value keeps even where its place is long.
_LEAST = 24
_MOST = 4
# Pieces of text with their styles.
Line = list[tuple[str, str]]
_STYLES = {"head": "bold", "unknown": "yellow", "remark": "bold red"}


def render(views: Sequence[View], options: ReportOptions, is_all: bool) -> str:
    """The trees by launch file."""
    lines: list[Line] = []
    path, was_brief = "", False
    for index, view in enumerate(views):
        brief = is_brief(view, is_all)
        is_other = view.command.location.path != path
        if is_other:
            path, was_brief = view.command.location.path, False
        if index and not (brief and was_brief):
            lines.append([])
        if is_other and not path.startswith(OUTSIDE):
            lines.append([(one_line(path), "bold cyan")])
        lines += _command(view, path, options.width, is_all)
        was_brief = brief
    if options.color:
        return _colored(lines, options)
    return "".join(f"{''.join(text for text, _ in line).rstrip()}\n" for line in lines)


def _colored(lines: Sequence[Line], options: ReportOptions) -> str:
    from rich.text import Text

    from dslint.report.console import text_console

    console, out = text_console(options)
    console.print(Text("\n").join(Text.assemble(*line) for line in lines), soft_wrap=True)
    return out.getvalue()


def _command(view: View, path: str, width: int, is_all: bool) -> Iterator[Line]:
    line = "" if path.startswith(OUTSIDE) else f"{view.command.location.region.line}: "
    note = " (example in a documentation)" if view.command.in_docs else ""
    for index, part in enumerate(_wrapped(one_line(headline(view, is_all)) + note, width - len(line))):
        yield [(line if not index else " " * len(line), "cyan"), (part, "bold")]
    rows = rows_of(view, is_all)
    for index, row in enumerate(rows):
        is_last = index == len(rows) - 1
        yield from _row(row, "└─ " if is_last else "├─ ", "   " if is_last else "│  ", path, width)


def _row(row: Row, first: str, rest: str, path: str, width: int) -> Iterator[Line]:
    label = row.label.ljust(_LABEL)
    yield from _columns(row, f"{first}", label, rest + " " * _LABEL, path, width)
    for child in row.children:
        yield from _columns(child, rest, " " * _LABEL, rest + " " * _LABEL, path, width)


def _columns(row: Row, prefix: str, label: str, rest: str, path: str, width: int) -> Iterator[Line]:
    """The text at the left, its places at the right of the last line that has room for them."""
    room = width - cell_len(prefix) - len(label)
    value, places = one_line(row.text), _joined(places_text(row.places, path), room)
    parts = _wrapped(value, room)
    if places and cell_len(parts[-1]) + 2 + cell_len(places) > room:
        parts = _wrapped(value, max(_LEAST, room - cell_len(places) - 2)) if cell_len(places) < room // 2 else parts
        if cell_len(parts[-1]) + 2 + cell_len(places) > room:
            parts.append("")
    style = _STYLES.get(row.style, "")
    for index, part in enumerate(parts):
        line = [(rest if index else prefix, "blue"), ("" if index else label, "cyan"), (part, style)]
        if places and index == len(parts) - 1:
            gap = max(1 if part else 0, room - cell_len(part) - cell_len(places))
            line += [(" " * gap, ""), (places, "bright_black")]
        yield line


def _joined(places: Sequence[str], room: int) -> str:
    """The first places, as many as fit into a line and never more than four."""
    shown = ""
    for number, place in enumerate(map(one_line, places)):
        longer = f"{shown}, {place}" if shown else place
        if number == _MOST or (shown and cell_len(longer) > room - 3):
            shown += ", …"
            break
        shown = longer
    return shown if cell_len(shown) <= room else "…" + shown[len(shown) - room + 1 :]


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width`` cells, broken at blanks where there are any."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        while cell_len(word) > width:
            lines, line, word = [*lines, *([line] if line else [])], "", word
            head = _fitting(word, width)
            lines.append(head)
            word = word[len(head) :]
        joined = f"{line} {word}" if line else word
        if cell_len(joined) > width:
            lines.append(line)
            line = word
        else:
            line = joined
    return [*lines, line] if line or not lines else lines


def _fitting(word: str, width: int) -> str:
    end = min(len(word), width)
    while end > 1 and cell_len(word[:end]) > width:
        end -= 1
    return word[:end]
