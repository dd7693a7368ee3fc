"""Numbers as people read them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``"1 file"``, ``"2 files"``."""
    plural = "" if number == 1 or noun == "info" else "s"
    return f"{number} {noun}{plural}"
