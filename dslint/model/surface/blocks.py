"""The file of one library: an index, and compressed blocks of lines that are read when a name in them is asked."""

from __future__ import annotations

import bisect
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from dslint.core.schemafiles import load_bytes

_MAGIC = b"DSLS1"


class Blocks:
    """Lines by module and name. A line is ``module TAB first name TAB JSON``; see scripts/surface/pack.py."""

    def __init__(self, library: str) -> None:
        content = load_bytes(f"surface/{library}.names")
        if not content.startswith(_MAGIC):
            raise OSError(f"surface/{library}.names has another form than this dslint reads")
        head = len(_MAGIC)
        (size,) = struct.unpack_from(">I", content, head)
        start = head + 4
        index: dict[str, Any] = json.loads(zlib.decompress(content[start : start + size]))
        self.releases: tuple[str, ...] = tuple(index["releases"])
        self._sets: list[str] = index["sets"]
        self.extra: dict[str, Any] = index
        self._starts = [tuple(each.split("\t")) for each in index["starts"]]
        self._content = content
        self._offsets = [start + size]
        for length in index["lengths"]:
            self._offsets.append(self._offsets[-1] + length)
        self._blocks: dict[int, str] = {}
        self._heads: dict[str, dict[str, Any] | None] = {}
        self._lines: dict[tuple[str, str], dict[str, Any]] = {}

    def releases_of(self, code: str) -> int:
        """The set of releases that a code stands for, as bits."""
        return int(self._sets[int(code)], 16)

    def head(self, module: str) -> dict[str, Any] | None:
        """The first line of a module; ``None`` when no release has the module."""
        if module not in self._heads:
            self._heads[module] = self._line(module, "")
        return self._heads[module]

    def line(self, module: str, name: str) -> dict[str, Any]:
        """The line that has this name of a module, if one has."""
        return self._line(module, name) or {}

    def modules(self) -> list[str]:
        """All modules that some release has."""
        found: dict[str, None] = {}
        for place in range(len(self._starts)):
            for line in self._block(place)[1:].split("\n"):
                found[line.partition("\t")[0]] = None
        return list(found)

    def lines(self, module: str) -> Iterator[dict[str, Any]]:
        """All lines of a module."""
        first = max(0, bisect.bisect_right(self._starts, (module, "")) - 1)
        for place in range(first, len(self._starts)):
            if self._starts[place][0] > module:
                return
            text, mark = self._block(place), f"\n{module}\t"
            at = text.find(mark)
            while at >= 0:
                start = text.index("\t", at + len(mark)) + 1
                end = text.find("\n", start)
                yield json.loads(text[start : len(text) if end < 0 else end])
                at = text.find(mark, start)

    def _line(self, module: str, name: str) -> dict[str, Any] | None:
        place = bisect.bisect_right(self._starts, (module, name)) - 1
        if place < 0:
            return None
        text = self._block(place)
        # The last line of the module in the block whose first name is not behind this one.
        at = self._find(text, module, name)
        if at is None:
            return None
        start, end = at
        key = (str(place), str(start))
        if key not in self._lines:
            self._lines[key] = json.loads(text[start:end])
        return self._lines[key]

    def _block(self, place: int) -> str:
        if place not in self._blocks:
            packed = self._content[self._offsets[place] : self._offsets[place + 1]]
            self._blocks[place] = "\n" + zlib.decompress(packed).decode()
        return self._blocks[place]

    def _find(self, text: str, module: str, name: str) -> tuple[int, int] | None:
        """Where the JSON of the line begins and ends."""
        mark = f"\n{module}\t"
        at = text.find(mark)
        found = None
        while at >= 0:
            first_end = text.index("\t", at + len(mark))
            first = text[at + len(mark) : first_end]
            if first > name:
                break
            end = text.find("\n", first_end)
            found = (first_end + 1, len(text) if end < 0 else end)
            at = text.find(mark, first_end)
        return found
