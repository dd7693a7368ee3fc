"""Which script rules could the bytes of a file concern? The question is asked of every file, so it must cost little.

A marker is a regular expression, and most are alternatives of plain words. ``word in raw`` is ten to twenty times
faster than Python's regular expressions with alternatives, so words are searched for as words, once for all rules.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from dslint.rules.index import RULES

if TYPE_CHECKING:
    from dslint.core.profile import Profile
    from dslint.model.context import Vocabulary

_WORD = re.compile(r"(?:[A-Za-z0-9_ ]|\\\.)+")


class _Marker(NamedTuple):
    """Words of which one is enough, and what is left of the expression: empty when the words say it all."""

    words: tuple[bytes, ...]
    rest: str


def rules_by_marker(
    raw: bytes, enabled: frozenset[str], own: Vocabulary | None = None, profile: Profile | None = None
) -> tuple[str, ...]:
    """The enabled script rules that the bytes of a file could concern.

    With one of the project's ``own`` names in it these are all of them: no marker knows that name.
    """
    if own is not None and own.stands_in(raw):
        return tuple(code for code, _ in _table() if code in enabled)
    seen: dict[bytes | str, bool] = {}
    if profile is not None:
        return tuple(
            code
            for code, markers in _table()
            if code in enabled and profile.charged(code, "markers", partial(_all_found, markers, raw, seen))
        )
    return tuple(code for code, markers in _table() if code in enabled and _all_found(markers, raw, seen))


def _all_found(markers: tuple[_Marker, ...], raw: bytes, seen: dict[bytes | str, bool]) -> bool:
    return all(_found(marker, raw, seen) for marker in markers)


def _found(marker: _Marker, raw: bytes, seen: dict[bytes | str, bool]) -> bool:
    for word in marker.words:
        known = seen.get(word)
        if known is None:
            known = seen[word] = word in raw
        if known:
            return True
    if not marker.rest:
        return False
    known = seen.get(marker.rest)
    if known is None:
        known = seen[marker.rest] = re.search(marker.rest.encode(), raw) is not None
    return known


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[str, tuple[_Marker, ...]], ...]:
    # Plain words first: they spare most files the expressions.
    return tuple(
        (rule.code, tuple(sorted(map(_split, rule.markers), key=lambda marker: bool(marker.rest))))
        for rule in RULES
        if rule.kind == "script"
    )


def _split(pattern: str) -> _Marker:
    if pattern.startswith("(?") and pattern[2:3].isalpha():  # flags for all alternatives
        return _Marker((), pattern)
    parts = _alternatives(pattern)
    words = {part.replace("\\.", ".") for part in parts if _WORD.fullmatch(part)}
    # ``get_world_size`` says nothing that ``world_size`` does not say.
    needed = sorted(word for word in words if not any(other != word and other in word for other in words))
    rest = "|".join(part for part in parts if not _WORD.fullmatch(part))
    return _Marker(tuple(word.encode() for word in needed), rest)


def _alternatives(pattern: str) -> list[str]:
    """The alternatives at the top level of an expression."""
    parts = [""]
    depth = 0
    for token in re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|.", pattern, re.DOTALL):
        if token == "|" and not depth:
            parts.append("")
            continue
        depth += {"(": 1, ")": -1}.get(token, 0)
        parts[-1] += token
    return parts
