"""Ranges as sets of existing releases, by ``packaging``, which is what pip asks."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from dslint.model.versions.plain import allows, numbers, plain_range

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

# What a builder adds to a release (`2.1.0+cu118`): no index of releases lists it.
_LOCAL = re.compile(r"(==\s*[\w.]+)\+[\w.]+")


@lru_cache(maxsize=2048)
def specifiers(text: str) -> SpecifierSet | None:
    """The set that a specifier means; ``None`` for what is no PEP 440."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(_LOCAL.sub(r"\1", text))
    except InvalidSpecifier:
        return None


@lru_cache(maxsize=8192)
def version(text: str) -> Version | None:
    """A version, ``None`` for what is none."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        return None


_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


@lru_cache(maxsize=16384)
def contains(specifier: str, release: str) -> bool:
    """Whether a range allows a release; what cannot be read allows all."""
    if not specifier:
        return True
    plain = plain_range(specifier) if _NUMBERS.fullmatch(release) else None
    if plain is not None:  # nearly always, and then packaging need not be loaded
        return allows(plain, numbers(release))
    wanted = specifiers(specifier)
    return wanted is None or wanted.contains(release, prereleases=True)


@lru_cache(maxsize=1024)
def existing(library: str, specifier: str) -> tuple[str, ...] | None:
    """The existing releases of a library in a range, oldest first; ``None`` for a range that cannot be read.

    A yanked release counts where it is pinned, as for pip.
    """
    from dslint.model.versions.known import releases_of

    if specifier and plain_range(specifier) is None and specifiers(specifier) is None:
        return None
    found = [release for release in releases_of(library) if contains(specifier, release.version)]
    pinned = pin_of(specifier) is not None
    return tuple(release.version for release in found if pinned or not release.is_yanked)


@lru_cache(maxsize=1024)
def pin_of(specifier: str) -> str | None:
    """The one release that a specifier names, without what a builder added; else ``None``."""
    for part in specifier.split(","):
        part = part.strip()
        if part.startswith("==") and not part.endswith("*"):
            named = version(part.lstrip("= "))
            return named.public if named is not None else None
    return None
