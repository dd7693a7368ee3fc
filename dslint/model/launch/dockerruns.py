"""The words of ``docker run`` around a launch command, also one in a script that the container runs."""

from __future__ import annotations

import re

from dslint.core.source import Location

_RUNS = re.compile(
    r"(?:^|[\s;&|(\"'])(?:nvidia-docker|docker|podman|nerdctl)\s+(?:container\s+)?run\s"
    r"(?P<words>.*)",
    re.S,
)
# `$ARGS`, `"${OPTIONS[@]}"` as a word of its own: any option may be in it.
_OPEN = re.compile(r"[\"']?\$(?:\{\w+[^}]*\}|\w+)[\"']?")
_IMAGE = re.compile(r"ima?ge?|tag|container|docker", re.I)


def words_until(text: str, place: Location) -> str:
    """Return a command of a text from its first line to the end of a place: a script is called behind the container."""
    begin = text.rfind("\n", 0, place.span.start) + 1
    while begin > 1 and text[begin - 2] == "\\":
        begin = text.rfind("\n", 0, begin - 1) + 1
    return text[begin : place.span.end]


def container_words(text: str) -> list[str] | None:
    """Return the words behind ``docker run``; nothing where there is none, or where a word may hold any option."""
    found = _RUNS.search(text)
    if found is None:
        return None
    words = found["words"].replace("\\\n", " ").split()
    pairs = zip(["", *words], words, strict=False)
    is_open = any(
        _OPEN.fullmatch(word) and not _IMAGE.search(word) and not (before.startswith("-") and "=" not in before)
        for before, word in pairs
    )
    return None if is_open else words
