"""From the stretches of an expanded word to the words that a command receives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from dslint.model.shell.pieces import Lookup, Piece, UnknownWordError

# Unquoted characters that bash replaces by file names.
_ACTIVE = re.compile(r"[*?\[]")
_BLANKS = re.compile(r"[ \t\n]+")


def fields(pieces: Sequence[Piece], lookup: Lookup) -> list[str]:
    """Word splitting and the check for file name patterns."""
    if any(p.items == () for p in pieces):
        # ``"$@"`` without arguments is no word; with other texts around it is nothing among them.
        if not any(p.text or p.items for p in pieces) and sum(p.items is None for p in pieces) <= _QUOTES_AROUND:
            return []
        if not any(p.text for p in pieces):
            raise UnknownWordError
    if pieces and all(p.quoted and p.items is None for p in pieces):
        return ["".join(p.text for p in pieces)]
    # A field is a list of texts; ``None`` ends one.
    parts: list[str | None] = []
    for piece in pieces:
        items = (piece.text,) if piece.items is None else piece.items
        for number, item in enumerate(items):
            if number:
                parts.append(None)
            parts += _split(item, piece, lookup)
    return ["".join(filter(None, group)) for ends, group in groupby(parts, lambda p: p is None) if not ends]


# Two quotation marks and what stands between them.
_QUOTES_AROUND = 3


def _split(text: str, piece: Piece, lookup: Lookup) -> list[str | None]:
    """The texts of one stretch or of one element of it, ``None`` where a word ends."""
    if piece.quoted:
        return [text]
    if _ACTIVE.search(text) or (piece.splits and "\\" in text):
        raise UnknownWordError("the names of files decide")
    if not piece.splits:
        return [text]
    if not lookup.split:
        raise UnknownWordError
    parts: list[str | None] = []
    for index, part in enumerate(_BLANKS.split(text)):
        parts += ([None] if index else []) + ([part] if part else [])
    return parts
