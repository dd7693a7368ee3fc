"""How a report should look; decided once from the flags, the stream and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a format may know besides the findings.

    ``color``: terminal escapes are welcome. ``width``: columns to wrap prose and crop source lines to.
    ``hyperlinks``: the terminal understands OSC 8. ``files``: how many files were checked.
    """

    color: bool = False
    width: int = 100
    hyperlinks: bool = False
    files: int = 0


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
    import shutil

    columns = shutil.get_terminal_size((100, 24)).columns if _is_terminal(stream) else 100
    stated = environ.get("COLUMNS", "")
    if stated.isdigit() and int(stated) > 0:
        columns = int(stated)
    return max(40, min(160, columns))


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False
