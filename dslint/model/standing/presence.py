"""Whether a dotted name of a library is there in a release, and which part of it is the first that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslint.model.surface import Surface


def is_there(surface: Surface, dotted: str, release: str) -> bool | None:
    """Whether a release has a name; ``None`` where the surface does not tell."""
    found = surface.presence(dotted)
    if release in found.in_releases:
        return True
    return None if release in found.unknown_in else False


def first_missing(surface: Surface, dotted: str, release: str) -> str:
    """The shortest part of a dotted name, from the library on, that a release lacks for certain."""
    parts = dotted.split(".")
    for end in range(2, len(parts) + 1):
        name = ".".join(parts[:end])
        found = is_there(surface, name, release)
        if found is not True:
            return name if found is False else ""
    return ""
