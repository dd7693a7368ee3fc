"""Numbers as people read them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``"1 file"``, ``"2 files"``; the severity ``info`` is spoken of as a note."""
    noun = "note" if noun == "info" else noun
    ending = "" if number == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{number} {noun}{ending}"
