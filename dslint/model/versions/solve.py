"""Whether what one file asks for can be installed together, by the metadata of all releases.

Releases are struck out that go with no release of another library, until nothing changes. A library without any release
left proves that there is no solution; what is left may still have none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from dslint.model.versions.allowed import Bound
from dslint.model.versions.answer import marker_holds
from dslint.model.versions.known import releases_of
from dslint.model.versions.ranges import contains, existing
from dslint.model.versions.required import Required, compatible, required_by, specifiers_on

# A range, and whether the distribution comes from elsewhere: what is asked of a bound here.
_Range = tuple[str, bool]


class Clash(NamedTuple):
    """Why a release goes with none of another library.

    ``owner`` at ``release`` requires ``required``; ``other`` is the library against which it stands: at ``candidate``
    it requires another range of the same third (``against``), or else the file states one of it.
    """

    owner: str
    release: str
    required: Required
    other: str
    against: str = ""
    candidate: str = ""


@dataclass(frozen=True, slots=True)
class NoSolution:
    """A library of which no release is left, why the newest one went, and what had narrowed the other library."""

    library: str
    clash: Clash
    before: tuple[Clash, ...] = ()


@dataclass(slots=True)
class Problem:
    """What one file asks for: the certain bounds of each distribution, on one Python."""

    bounds: Mapping[str, Sequence[_Range]]
    python: str
    domains: dict[str, list[str]] = field(default_factory=dict)
    struck: dict[str, Clash] = field(default_factory=dict)

    def solve(self) -> NoSolution | None:
        """The library that no release is left of; ``None`` where nothing proves that there is no solution."""
        for name, bounds in self.bounds.items():
            found = self._domain(name, bounds)
            if found:
                self.domains[name] = found
        self._imply()
        if len(self.domains) + len(self._others()) < 2:
            return None
        changed = True
        while changed:
            changed = False
            for name in self.domains:
                clash = self._narrow(name)
                changed = changed or clash is not None
                if clash is not None:
                    if not self.domains[name]:
                        return NoSolution(name, clash, self._before(name, clash))
                    self.struck[name] = clash
        return None

    def _imply(self) -> None:
        """Add what every allowed release of a library requires, and the file does not name: any release of it."""
        for name in list(self.domains):
            asked = [{required.name for required in required_by(name, r, self.python)} for r in self.domains[name]]
            for other in sorted(set.intersection(*asked)) if asked else ():
                if other not in self.domains and other not in self.bounds and releases_of(other):
                    self.domains[other] = [release.version for release in releases_of(other) if not release.is_yanked]

    def _domain(self, name: str, bounds: Sequence[_Range]) -> list[str]:
        """The releases that the file allows, oldest first; none for what is not followed or comes from elsewhere."""
        usual = [release.version for release in releases_of(name)]
        if not usual or any(is_elsewhere for _, is_elsewhere in bounds):
            return []
        sets = [existing(name, specifier) for specifier, _ in bounds]
        return [release for release in usual if all(found is not None and release in found for found in sets)]

    def _others(self) -> dict[str, tuple[str, ...]]:
        """The ranges of distributions whose releases are not listed."""
        return {
            name: tuple(specifier for specifier, _ in bounds if specifier)
            for name, bounds in self.bounds.items()
            if not releases_of(name) and any(specifier for specifier, _ in bounds)
        }

    def _narrow(self, name: str) -> Clash | None:
        """Strike out the releases that go with nothing; why the newest of them goes."""
        kept, first = [], None
        for release in reversed(self.domains[name]):
            clash = self._against_file(name, release) or self._against_others(name, release)
            if clash is None:
                kept.append(release)
            elif first is None:
                first = clash
        self.domains[name] = kept[::-1]
        return first

    def _against_file(self, name: str, release: str) -> Clash | None:
        others = self._others()
        for required in required_by(name, release, self.python):
            stated = others.get(required.name)
            if stated and not compatible((required.specifier, *stated)):
                return Clash(name, release, required, required.name)
        return None

    def _against_others(self, name: str, release: str) -> Clash | None:
        for other, domain in self.domains.items():
            if other != name:
                first: Clash | None = None
                for candidate in reversed(domain):
                    found = _clash(name, release, other, candidate, self.python)
                    if found is None:
                        break
                    first = first or found
                else:
                    return first
        return None

    def _before(self, name: str, clash: Clash) -> tuple[Clash, ...]:
        """What had narrowed the libraries of the clash before."""
        names = dict.fromkeys((name, clash.owner, clash.other))
        return tuple(self.struck[other] for other in names if other in self.struck)


def unsolved(bounds: Mapping[str, Sequence[Bound]], python: str) -> NoSolution | None:
    """Why what one file asks for cannot be installed together; `None` where nothing proves that."""
    asked = ((name, tuple((b.specifier, bool(b.taken_from)) for b in stated)) for name, stated in bounds.items())
    return _unsolved(tuple(asked), python)


@lru_cache(maxsize=1024)
def _unsolved(asked: tuple[tuple[str, tuple[_Range, ...]], ...], python: str) -> NoSolution | None:
    """Of an editor the same is asked after each change of any file."""
    return Problem(dict(asked), python).solve()


@lru_cache(maxsize=65536)
def _clash(first: str, release: str, second: str, candidate: str, python: str) -> Clash | None:
    """Why two releases do not go together by their metadata."""
    mine, theirs = required_by(first, release, python), required_by(second, candidate, python)
    for required in mine:
        if required.name == second and not contains(required.specifier, candidate):
            return Clash(first, release, required, second)
    for required in theirs:
        if required.name == first and not contains(required.specifier, release):
            return Clash(second, candidate, required, first)
    for required in mine:
        for specifier in specifiers_on(required.name, theirs):
            if not _have_common(required.name, required.specifier, specifier):
                return Clash(first, release, required, second, specifier, candidate)
    return None


@lru_cache(maxsize=8192)
def _have_common(name: str, first: str, second: str) -> bool:
    """Whether some release of a distribution may lie in both ranges."""
    mine, theirs = existing(name, first), existing(name, second)
    if mine and theirs:
        return not set(mine).isdisjoint(theirs)
    return compatible((first, second))


def holding(bounds: Sequence[Bound], python: str) -> list[Bound]:
    """The bounds that surely hold on Linux with this Python."""
    return [b for b in bounds if (marker_holds(b.marker, python) is True if b.marker else b.is_certain)]


# How often two releases are compared before the search gives up.
_MOST_STEPS = 50_000


def choose(domains: Mapping[str, Sequence[str]], python: str, asked: Collection[str] = ()) -> dict[str, str]:
    """The newest release of each library so that all go together by their metadata; empty where none are found.

    The libraries that are ``asked`` for come first, as for pip, then those that have fewest releases left: a pin
    decides over an open range.
    """
    order = sorted(domains, key=lambda name: (name not in asked, len(domains[name])))
    chosen: list[tuple[str, str]] = []
    places = [0] * len(order)
    for _ in range(_MOST_STEPS):
        at = len(chosen)
        if at == len(order):
            return dict(chosen)
        name = order[at]
        releases = domains[name]
        if places[at] < len(releases):
            candidate = releases[len(releases) - 1 - places[at]]
            places[at] += 1
            if not any(_clash(other, release, name, candidate, python) for other, release in chosen):
                chosen.append((name, candidate))
        elif chosen:
            places[at] = 0
            chosen.pop()
        else:
            return {}
    return {}
