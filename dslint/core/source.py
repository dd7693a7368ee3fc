"""A text with positions: offsets inside dslint, lines and columns at its edges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

# Places that stand in no file: ``<command line>``, and ``<$NPROC>`` for a variable of the environment.
OUTSIDE = "<"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of code points in one text: ``text[start:end]``."""

    start: int
    end: int

    def shifted(self, offset: int) -> Span:
        """The same range in a host text where this text begins at ``offset``."""
        return Span(self.start + offset, self.end + offset) if offset else self


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """A span as people read it: 1-based lines and columns (code points), end column exclusive.

    ``cell`` is the 1-based number of the notebook cell that the lines count from, else ``None``.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    cell: int | None = None


class Location:
    """A place in a file; ``label`` says what stands there ("world size 8 set here").

    Lines and columns are counted when somebody asks for them: most places of a run are never shown. So two places are
    the same when path, span and label are; a place that is pickled takes its region along, and not the text.
    """

    __slots__ = ("_region", "label", "path", "span")

    def __init__(self, path: str, span: Span, region: Region | SourceFile, label: str = "") -> None:
        self.path = path
        self.span = span
        self.label = label
        self._region = region

    @property
    def region(self) -> Region:
        """The lines and columns of the span."""
        found = self._region
        if isinstance(found, SourceFile):
            self._region = found = found.region(self.span)
        return found

    @property
    def counted_in(self) -> SourceFile | None:
        """The text whose lines nobody has counted for this place yet."""
        return self._region if isinstance(self._region, SourceFile) else None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Location):
            return NotImplemented
        return self.span == other.span and self.path == other.path and self.label == other.label

    def __hash__(self) -> int:
        return hash((self.path, self.span.start, self.span.end, self.label))

    def __reduce__(self) -> tuple[type[Location], tuple[str, Span, Region, str]]:
        return Location, (self.path, self.span, self.region, self.label)

    def __str__(self) -> str:
        if self.path.startswith(OUTSIDE):
            return self.path[1:-1]
        return f"{self.path}:{self.region.line}"

    def __repr__(self) -> str:
        return f"Location(path={self.path!r}, span={self.span!r}, region={self.region!r}, label={self.label!r})"

    def labelled(self, label: str) -> Location:
        """The same place with another label."""
        return Location(self.path, self.span, self._region, label)


def labelled(places: Iterable[Location], label: str) -> tuple[Location, ...]:
    """The places; those that have no label get this one."""
    return tuple(place if place.label else place.labelled(label) for place in places)


@dataclass(slots=True)
class SourceFile:
    """The text of one file (or of the part of it that a parser reads) and where it stands.

    ``path`` is what the user sees: relative to the working directory with ``/``.
    ``text`` is decoded UTF-8 without a byte order mark, line ends as in the file.
    """

    path: str
    text: str
    _starts: list[int] = field(default_factory=list, repr=False, compare=False)
    # Code cells of a notebook: (first 0-based line in ``text``, 1-based cell number), ascending.
    cells: tuple[tuple[int, int], ...] = ()

    @property
    def line_starts(self) -> list[int]:
        """Offset of the first code point of each line; built on first use because most files have no hit."""
        if not self._starts:
            starts = [0]
            find = self.text.find
            at = find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = find("\n", at + 1)
            self._starts = starts
        return self._starts

    def line_column(self, offset: int) -> tuple[int, int]:
        """1-based line and column of an offset."""
        starts = self.line_starts
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """Offset of a 1-based line and column; the inverse of :meth:`line_column`."""
        return self.line_starts[line - 1] + column - 1

    def line_text(self, line: int) -> str:
        """The 1-based line without its line end."""
        starts = self.line_starts
        end = starts[line] if line < len(starts) else len(self.text)
        return self.text[starts[line - 1] : end].rstrip("\r\n")

    def line_after(self, offset: int) -> int:
        """The offset at which the line after that of an offset begins; the end of the text after the last."""
        end = self.text.find("\n", offset)
        return len(self.text) if end < 0 else end + 1

    def region(self, span: Span) -> Region:
        """The lines and columns of a span."""
        starts = self.line_starts
        end = max(span.start, span.end)
        line = end_line = bisect_right(starts, span.start)
        if line < len(starts) and starts[line] <= end:
            end_line = bisect_right(starts, end, line)
        column, end_column = span.start - starts[line - 1] + 1, end - starts[end_line - 1] + 1
        if not self.cells:
            return Region(line, column, end_line, end_column)
        first, cell = max((c for c in self.cells if c[0] < line), default=(0, 1))
        return Region(line - first, column, end_line - first, end_column, cell)

    def location(self, span: Span, label: str = "") -> Location:
        """A place in this file that a finding or a fact can carry."""
        return Location(self.path, span, self, label)
