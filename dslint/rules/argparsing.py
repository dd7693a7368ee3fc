"""Declarations of arguments, looked for in the bytes of a file: a parse costs a hundred times more."""

from __future__ import annotations

from collections.abc import Iterator

_CALL = b"add_argument"
# A declaration is shorter than this.
_LONGEST = 600


def declarations(raw: bytes) -> Iterator[bytes]:
    """Yield what stands between the brackets of each `add_argument(...)`; nothing where it is only named."""
    at = raw.find(_CALL)
    while at >= 0:
        at += len(_CALL)
        text = raw[at : at + _LONGEST].lstrip()
        yield text[1 : _end(text)] if text.startswith(b"(") else b""
        at = raw.find(_CALL, at)


def _end(text: bytes) -> int:
    """Return where the first bracket is closed; brackets in texts count, too, which makes the piece longer."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in b"([{") - (letter in b")]}")
        if not depth:
            return at
    return len(text)
