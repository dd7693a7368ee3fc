"""A log as blocks of bytes: bounded memory for any size, whatever its lines look like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

CHUNK = 1 << 20
# How far behind a hit a traceback or a launcher's report is read.
AHEAD = 1 << 16
LINE = 4096
_ESCAPE = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\))")


class Block(NamedTuple):
    """Some lines of a log, without colours. Hits before ``limit`` belong to it; the rest is for looking ahead.

    ``line`` is the number of the first line: lines end at line feeds, as editors count them, while carriage returns
    (progress bars) only end a piece of text.
    """

    data: bytes
    limit: int
    line: int
    last: bool

    def bounds(self, at: int) -> tuple[int, int]:
        """Start and end of the piece of text around a byte, at most ``LINE`` bytes to each side."""
        low, high = max(0, at - LINE), min(len(self.data), at + LINE)
        start = max(self.data.rfind(b"\n", low, at), self.data.rfind(b"\r", low, at)) + 1 or low
        ends = [end for end in (self.data.find(b"\n", at, high), self.data.find(b"\r", at, high)) if end >= 0]
        return start, min(ends, default=high)

    def following(self, at: int, count: int = 400) -> Iterator[tuple[int, int]]:
        """The bounds of the pieces of text behind the one that ends at ``at``; empty ones are passed over."""
        size = len(self.data)
        while at < size and count:
            while at < size and self.data[at] in b"\r\n":
                at += 1
            if at >= size:
                return
            start, end = self.bounds(at)
            yield max(start, at), end
            at, count = end, count - 1

    def number(self, at: int, known: tuple[int, int]) -> int:
        """The line number at a byte, counted on from ``known``, an earlier (byte, line number)."""
        return known[1] + self.data.count(b"\n", known[0], at)


def blocks(read: Callable[[int], bytes], size: int = CHUNK, ahead: int = AHEAD) -> Iterator[Block]:
    """Cut what ``read`` returns into blocks that end at a line; a line without end is cut where it must be."""
    held, line = b"", 1
    while True:
        fresh = read(size)
        held = _plain(held + fresh)
        if not fresh:
            if held:
                yield Block(held, len(held), line, True)
            return
        limit = _cut(held, len(held) - ahead)
        if limit <= 0:
            continue
        yield Block(held, limit, line, False)
        line += held.count(b"\n", 0, limit)
        held = held[limit:]


def _cut(held: bytes, at: int) -> int:
    if at <= 0:
        return 0
    found = max(held.rfind(b"\n", 0, at), held.rfind(b"\r", 0, at)) + 1
    return found or at


def _plain(data: bytes) -> bytes:
    return _ESCAPE.sub(b"", data) if b"\x1b" in data else data
