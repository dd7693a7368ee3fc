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


# What terminals that show OSC 8 links call themselves by; others would print the escapes.
_LINKING_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "WarpTerminal", "rio"})
_LINKING_VARIABLES = ("WT_SESSION", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "DOMTERM", "ALACRITTY_WINDOW_ID")
# The first VTE (GNOME Terminal and its relatives) whose links are safe: 0.50.
_LINKING_VTE = 5000


def use_links(stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Whether the stream shows links (OSC 8): ``FORCE_HYPERLINK`` (``0``: no), then what the terminal says it is."""
    if stated := environ.get("FORCE_HYPERLINK"):
        return stated != "0"
    if not _is_terminal(stream) or environ.get("TERM") == "dumb" or "TMUX" in environ or "STY" in environ:
        return False
    vte = environ.get("VTE_VERSION", "")
    return (
        environ.get("TERM_PROGRAM") in _LINKING_PROGRAMS
        or any(name in environ for name in _LINKING_VARIABLES)
        or (vte.isdecimal() and int(vte) >= _LINKING_VTE)
    )


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
