"""The lines that a report quotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

_MAX_BYTES = 16_000_000


class SourceReader(Protocol):
    """Gives a report the text that was judged."""

    def text(self, path: str) -> str:
        """The text of a file, empty when it cannot be read (any more)."""

    def lines(self, path: str, cell: int | None = None) -> Sequence[str]:
        """The lines of a file, or of one cell of a notebook, without line ends; empty when there are none."""


class FileSources:
    """Reads from disk on demand; ``overrides`` (path -> text) win: stdin and text changed by ``--fix``."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        self._overrides = dict(overrides or {})
        self._texts: dict[str, str] = {}
        self._lines: dict[tuple[str, int | None], list[str]] = {}

    def text(self, path: str) -> str:
        """The text of a file without byte order mark, empty when it cannot be read (any more)."""
        if path in self._overrides:
            return self._overrides[path]
        if path not in self._texts:
            self._texts[path] = _read(path)
        return self._texts[path]

    def lines(self, path: str, cell: int | None = None) -> Sequence[str]:
        """The lines of a file or notebook cell; split at line feeds only, as positions are counted."""
        key = (path, cell)
        if key not in self._lines:
            text = self.text(path) if cell is None else _cell_text(self.text(path), cell)
            self._lines[key] = [line.rstrip("\r") for line in text.split("\n")] if text else []
        return self._lines[key]


def _read(path: str) -> str:
    import os
    import stat

    try:
        status = os.stat(path)
        # A pipe or device at this path would block for ever; nobody reads a frame of a huge or binary file.
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return ""
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except (OSError, ValueError):
        return ""
    return "" if "\0" in text else text


def _cell_text(text: str, cell: int) -> str:
    import json

    try:
        source = json.loads(text)["cells"][cell - 1]["source"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    if isinstance(source, list):
        return "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""
