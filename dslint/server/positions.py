"""Offsets of a text and positions of the protocol: lines from 0, columns in the units that the client counts."""

from __future__ import annotations

import re
from bisect import bisect_right

from lsprotocol import types

from dslint.core.source import Region, SourceFile, Span

# What ends a line for an editor; dslint itself counts line feeds only.
_LINE_END = re.compile(r"\r\n|\n|\r")


class Text:
    """One text with its lines as the client counts them.

    ``encoding`` is what the client counts columns in: ``utf-16`` code units unless both sides agree on others.
    """

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self._encoding = encoding
        self._starts: list[int] = []
        self._is_ascii = text.isascii()
        self._source: SourceFile | None = None

    @property
    def starts(self) -> list[int]:
        """Offset of the first character of each line."""
        if not self._starts:
            self._starts = [0, *(match.end() for match in _LINE_END.finditer(self.text))]
        return self._starts

    @property
    def end(self) -> types.Position:
        """The position behind the last character."""
        return self.position(len(self.text))

    def position(self, offset: int) -> types.Position:
        """The position of an offset."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self.starts, offset) - 1
        return types.Position(line, self._units(self.text[self.starts[line] : offset]))

    def range(self, span: Span) -> types.Range:
        """The range of a span."""
        return types.Range(self.position(span.start), self.position(max(span.start, span.end)))

    def offset(self, position: types.Position) -> int:
        """The offset of a position; one behind the end of its line means that end."""
        if position.line >= len(self.starts):
            return len(self.text)
        start = self.starts[position.line]
        end = self.starts[position.line + 1] if position.line + 1 < len(self.starts) else len(self.text)
        line = self.text[start:end].rstrip("\r\n")
        if self._is_ascii or self._encoding == "utf-32":
            return start + min(position.character, len(line))
        units = 0
        for index, character in enumerate(line):
            if units >= position.character:
                return start + index
            units += self._units(character)
        return start + len(line)

    def region(self, region: Region) -> types.Range:
        """The range of lines and columns that dslint has counted in this text."""
        if self._source is None:
            self._source = SourceFile("", self.text)
        source = self._source
        last = len(source.line_starts)
        if region.line > last:
            return types.Range(self.end, self.end)
        start = source.offset(region.line, region.column)
        end = source.offset(region.end_line, region.end_column) if region.end_line <= last else len(self.text)
        return self.range(Span(start, end))

    def changed(self, change: types.TextDocumentContentChangeEvent) -> Text:
        """The text after a change of the client."""
        if isinstance(change, types.TextDocumentContentChangePartial):
            start, end = self.offset(change.range.start), self.offset(change.range.end)
            return Text(self.text[:start] + change.text + self.text[max(start, end) :], self._encoding)
        return Text(change.text, self._encoding)

    def _units(self, text: str) -> int:
        if self._is_ascii or self._encoding == "utf-32":
            return len(text)
        if self._encoding == "utf-8":
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text) + sum(character > "\uffff" for character in text)
