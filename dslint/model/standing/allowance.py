"""Which releases of a library a project may run with, by the name of the package that it imports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.versions.allowed import STATED, UNKNOWN, Allowed, AllowedReleases
from dslint.model.versions.answer import newest_for
from dslint.model.versions.environment import environment
from dslint.model.versions.known import distribution_of, release_of, releases_of
from dslint.model.versions.ranges import contains
from dslint.model.versions.required import required_by

# Distributions that install the same release of another one.
_WITH = {"pytorch_lightning": "lightning"}
# Many packages that nobody follows hold these below a release.
HELD_BACK = {"numpy": "<2"}


@dataclass(frozen=True, slots=True)
class Allowance:
    """``releases`` may be installed, oldest first; a fresh install takes ``fresh`` of them. None: nobody knows.

    ``held_back`` is the release that a fresh install takes where what nobody follows excludes newer ones.
    """

    library: str
    releases: tuple[str, ...]
    fresh: str
    known: tuple[str, ...]
    allowed: AllowedReleases
    held_back: str = ""

    @property
    def is_stated(self) -> bool:
        """The project says something of the library."""
        return self.allowed.state == STATED

    @property
    def is_bounded(self) -> bool:
        """The project says which releases it takes; `torch` alone says no more than that it takes some."""
        return self.is_stated and any(bound.specifier for bound in self.allowed.bounds)

    @property
    def origins(self) -> tuple[Location, ...]:
        """The places that say which releases are allowed, strongest first."""
        found = [bound.origin for bound in self.allowed.bounds if bound.origin is not None and bound.specifier]
        return tuple(dict.fromkeys(found))[:2]


def allowance(library: str, context: Context) -> Allowance:
    """The releases of a library that the project around a file allows."""
    allowed = context.allowed.of(distribution_of(library))
    if allowed.state not in (STATED, UNKNOWN) and library in _WITH:
        other = context.allowed.of(_WITH[library])
        allowed = other if other.state in (STATED, UNKNOWN) else allowed
    known = existing(library)
    releases = () if allowed.state == UNKNOWN else _beside_pins(allowed, _fitting(allowed), context.allowed)
    fresh = _fresh(allowed, releases, context.allowed)
    older = [r for r in releases if library in HELD_BACK and contains(HELD_BACK[library], r)]
    return Allowance(library, releases, fresh, known, allowed, older[-1] if older else "")


def _beside_pins(allowed: AllowedReleases, releases: tuple[str, ...], every: Allowed) -> tuple[str, ...]:
    """The releases that go with what is pinned: torchvision 0.17.1 requires torch 2.2.1."""
    if allowed.is_pin or allowed.is_split or allowed.is_head:
        return releases
    for name, release in environment(every).pins.items():
        for required in required_by(name, release, every.python.version):
            if required.name == allowed.library:
                releases = tuple(r for r in releases if contains(required.specifier, r)) or releases
    return releases


def _fresh(allowed: AllowedReleases, releases: tuple[str, ...], every: Allowed) -> str:
    """What a fresh install takes, as far as the other libraries let it."""
    if allowed.is_split or allowed.is_head or allowed.state == UNKNOWN:
        return allowed.fresh or ""
    solved = environment(every).fresh.get(allowed.library, "")
    if solved in releases:
        return solved
    left = releases
    while newest := newest_for(allowed.library, left, every.python.version):
        if allowed.state == STATED or _suits(allowed.library, newest, every):
            return newest
        left = left[: left.index(newest)]
    return ""


def _suits(library: str, release: str, every: Allowed) -> bool:
    """What a release requires lets the pins be: beside transformers 4.37.2 nobody gets a trl that needs a newer one."""
    pins = environment(every).pins
    required = required_by(library, release, every.python.version) if pins else ()  # packaging is not loaded for none
    return all(contains(each.specifier, pins[each.name]) for each in required if each.name in pins)


def _fitting(allowed: AllowedReleases) -> tuple[str, ...]:
    """The allowed releases that install on the Python that the project states."""
    if not allowed.python.origin:
        return allowed.releases
    return _on_python(allowed.library, allowed.releases, allowed.python.version) or allowed.releases


@lru_cache(maxsize=256)
def _on_python(library: str, releases: tuple[str, ...], python: str) -> tuple[str, ...]:
    found = ((release, release_of(library, release)) for release in releases)
    return tuple(release for release, row in found if row is None or row.fits(python))


@lru_cache(maxsize=32)
def existing(library: str) -> tuple[str, ...]:
    """All releases of a library, oldest first, also those that were taken back: some projects pin them."""
    rows = releases_of(distribution_of(library))
    return tuple(release.version for release in rows)
