"""Which script rules could the bytes of a file concern? The question is asked of every file, so it must cost little.

A marker is a regular expression, and most are alternatives of plain words. ``word in raw`` is ten to twenty times
faster than Python's regular expressions with alternatives, so words are searched for as words, once for all rules.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from dslint.model.script.collective.vocabulary import ELSEWHERE
from dslint.rules.registry import all_rules, project_version

if TYPE_CHECKING:
    from dslint.core.profile import Profile
    from dslint.model.context import Vocabulary

# Behind a code: what is missing may stand in a file that this one imports.
IF_IMPORTED = "?"
_IMPORTS = re.compile(rb"^[ \t]*(?:from|import)[ \t]", re.MULTILINE)
_WORD = re.compile(r"(?:[A-Za-z0-9_ ]|\\\.)+")


class _Marker(NamedTuple):
    """Words of which one is enough, and what is left of the expression: empty when the words say it all.

    ``is_elsewhere``: a file of the project that this one imports may hold it instead.
    """

    words: tuple[bytes, ...]
    rest: str
    is_elsewhere: bool = False


def rules_by_marker(
    raw: bytes, enabled: frozenset[str], own: Vocabulary | None = None, profile: Profile | None = None
) -> tuple[str, ...]:
    """The enabled script rules that the bytes of a file could concern.

    A code with ``IF_IMPORTED`` behind it: only if the file imports something of its project that waits for other ranks.
    With one of the project's ``own`` names in it these are all of them: no marker knows that name.
    """
    if own is not None and own.stands_in(raw):
        return tuple(code for code, _ in _table(project_version()) if code in enabled)
    seen: dict[bytes | str, bool] = {}
    found: list[str] = []
    for code, markers in _table(project_version()):
        if code in enabled:
            look = partial(_look, markers, raw, seen)
            what = look() if profile is None else profile.charged(code, "markers", look)
            if what is not None:
                found.append(code + what)
    return tuple(found)


def _look(markers: tuple[_Marker, ...], raw: bytes, seen: dict[bytes | str, bool]) -> str | None:
    """Empty when all markers are found, ``?`` when the missing ones may stand in an imported file, else ``None``."""
    what = ""
    for marker in markers:
        if not _found(marker, raw, seen):
            if not marker.is_elsewhere:
                return None
            what = IF_IMPORTED
    return what if not what or _IMPORTS.search(raw) else None


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
def _table(_: int) -> tuple[tuple[str, tuple[_Marker, ...]], ...]:
    # Plain words first: they spare most files the expressions.
    return tuple(
        (rule.code, tuple(sorted(map(_marker, rule.markers), key=lambda m: (m.is_elsewhere, bool(m.rest)))))
        for rule in all_rules()
        if rule.kind == "script"
    )


def _marker(pattern: str) -> _Marker:
    return _split(pattern)._replace(is_elsewhere=pattern in ELSEWHERE)


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
