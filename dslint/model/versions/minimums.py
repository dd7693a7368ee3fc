"""Which releases of other libraries the code of a release asks for while it runs (``schemas/minimums.json``).

The metadata need not say so: `is_bitsandbytes_available` of transformers 5 is false below bitsandbytes 0.46.1, and what
loads a quantized model raises where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from dslint.core.schemafiles import load_file
from dslint.model.standing.presence import read_as
from dslint.model.surface import surface


class Ask(NamedTuple):
    """``place`` of a library asks for a range of ``other``.

    ``kind``: ``available`` (a function that is true there), ``asks`` (a function that raises elsewhere), ``asks if x``
    (where its argument is set), ``may ask`` (one that does under another condition), ``imports`` (a module that raises
    while it is imported).
    """

    kind: str
    other: str
    specifier: str
    place: str


@cache
def _table() -> dict[str, Any]:
    return load_file("minimums.json")


@lru_cache(maxsize=256)
def asks_of(library: str, release: str) -> tuple[Ask, ...]:
    """All that the code of a release asks for; packages by the names that are imported."""
    found = surface(library)
    if found is None or library not in _table():
        return ()
    read = read_as(found, release)
    places = {each: place for place, each in enumerate(found.releases)}
    return tuple(_asked(_table()[library], places, read)) if read in places else ()


def _asked(rows: list[Any], places: dict[str, int], release: str) -> Iterator[Ask]:
    at = places[release]
    for kind, other, specifier, place, runs in rows:
        # A release that is on the list no more begins and ends nothing.
        if any(places.get(first, at + 1) <= at < places.get(end, len(places)) for first, end in runs):
            yield Ask(kind, other, specifier, place)


@lru_cache(maxsize=4096)
def available_from(library: str, release: str, other: str) -> str:
    """The range in which a release takes another library as there; empty where any of its releases will do."""
    return next((ask.specifier for ask in asks_of(library, release) if ask[:2] == ("available", other)), "")
