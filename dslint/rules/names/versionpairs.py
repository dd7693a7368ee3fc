"""What rules say of two libraries that a project states beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslint.model.versions.known import distribution_of

if TYPE_CHECKING:
    from dslint.core.source import Location
    from dslint.rules.libraryuses import LibraryUses


def are_beside(view: LibraryUses, first: str, second: str) -> bool:
    """One file names both: what two files say may be meant for two environments."""
    paths = [
        {bound.origin.path for bound in view.context.allowed.of(name).bounds if bound.origin is not None}
        for name in (distribution_of(first), distribution_of(second))
    ]
    return bool(paths[0] & paths[1])


def stated_places(view: LibraryUses, *names: str) -> list[Location]:
    """Where the project states libraries: the pin of each, else the first line that names it."""
    found = []
    for name in names:
        allowed = view.context.allowed.of(distribution_of(name))
        bound = allowed.foremost
        if bound is not None and bound.origin is not None:
            found.append(bound.origin.labelled(f"{allowed.library} is stated here"))
    return found
