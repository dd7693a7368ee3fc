"""What a stream can show."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import IO


def use_color(choice: str, stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Whether to colour: the flag, then ``NO_COLOR``, then ``FORCE_COLOR`` (each when not empty), then the stream."""
    if choice in ("always", "never"):
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return _is_terminal(stream) and environ.get("TERM") != "dumb"


def terminal_width(stream: IO[str], environ: Mapping[str, str]) -> int:
    """Columns of the terminal (``COLUMNS`` wins), 100 when the stream is none; never below 40 or above 160."""
    columns = shutil.get_terminal_size((100, 24)).columns if _is_terminal(stream) else 100
    stated = environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        columns = int(stated)
    return max(40, min(160, columns))


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False
