"""From the stretches of an expanded word to the words that a command receives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from dslint.model.shell.pieces import Lookup, Piece, UnknownWordError

# Unquoted characters that bash replaces by file names.
_ACTIVE = re.compile(r"[*?\[]")


def fields(pieces: Sequence[Piece], lookup: Lookup) -> list[str]:
    """Word splitting and the check for file name patterns."""
    whole = next((p for p in pieces if p.items is not None), None)
    if whole is not None:
        return _spread(whole, pieces, lookup)
    # A field is a list of texts; ``None`` ends one.
    parts: list[str | None] = []
    for piece in pieces:
        if not piece.quoted and (_ACTIVE.search(piece.text) or (piece.splits and "\\" in piece.text)):
            raise UnknownWordError
        if piece.quoted or not piece.splits:
            parts.append(piece.text)
            continue
        if not lookup.split:
            raise UnknownWordError
        for index, part in enumerate(re.split(r"[ \t\n]+", piece.text)):
            parts += ([None] if index else []) + ([part] if part else [])
    return ["".join(filter(None, group)) for ends, group in groupby(parts, lambda p: p is None) if not ends]


def _spread(piece: Piece, pieces: Sequence[Piece], lookup: Lookup) -> list[str]:
    """``"${array[@]}"`` and ``${array[@]}``."""
    # Quotation marks around the expansion leave three empty pieces; anything else is glued to it.
    glued = any(p.text for p in pieces) or len(pieces) != (1 if piece.splits else 4)
    if glued or (piece.splits and not lookup.split):
        raise UnknownWordError
    if not piece.splits:
        return list(piece.items or ())
    elements = [e for i in piece.items or () for e in re.split(r"[ \t\n]+", i) if e]
    if any(_ACTIVE.search(e) or "\\" in e for e in elements):
        raise UnknownWordError
    return elements
