"""What an environment holds after several commands: each solves for itself, as pip does, beside what is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dslint.model.versions.allowed import Bound
from dslint.model.versions.known import release_of, releases_of
from dslint.model.versions.ranges import contains, existing
from dslint.model.versions.required import required_by
from dslint.model.versions.solve import choose
from dslint.model.versions.steps import Course, Step

# Requirements of requirements of requirements: further than this nobody has seen a chain.
_DEEP = 4


@dataclass(slots=True)
class Installed:
    """The releases at the end, which of them a file names, and the place that asked last for each."""

    releases: dict[str, str] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)
    asked: dict[str, Bound] = field(default_factory=dict)


def replay(course: Course, python: str) -> Installed:
    """Run the commands of one environment."""
    installed = Installed()
    unknown = set(course.unknown)
    for step in course.steps:
        _install(step, installed, unknown, course.python or python)
    return installed


def _install(step: Step, installed: Installed, unknown: set[str], python: str) -> None:
    for name in step.unknown:
        unknown.add(name)
        installed.releases.pop(name, None)
    domains: dict[str, list[str]] = {}
    for name, bounds in step.bounds.items():
        is_pin = any(bound.is_pin for bound in bounds)
        if name in unknown and not (is_pin or step.is_upgrade):
            continue
        found = _fitting(name, bounds, python)
        there = installed.releases.get(name, "")
        if there in found and not step.is_upgrade:
            domains[name] = [there]
        elif found:
            domains[name] = found
            installed.asked[name] = next((bound for bound in bounds if bound.is_pin), bounds[-1])
            (installed.pinned.add if is_pin else installed.pinned.discard)(name)
    chosen = _with_requirements(domains, installed.releases, unknown, python) if step.has_requirements else {}
    for name, release in (chosen or choose(domains, python)).items():
        unknown.discard(name)
        installed.releases[name] = release


def _fitting(name: str, bounds: list[Bound], python: str) -> list[str]:
    """The releases that all bounds allow, as far as they install on the Python; a pin may be one taken back."""
    sets = [existing(name, bound.specifier) for bound in bounds if bound.specifier]
    usual = [row.version for row in releases_of(name) if not row.is_yanked]
    found = [r for r in sets[0] if all(s is not None and r in s for s in sets)] if sets and sets[0] else usual
    return [release for release in found if (row := release_of(name, release)) is not None and row.fits(python)]


def _with_requirements(
    domains: Mapping[str, list[str]], there: Mapping[str, str], unknown: set[str], python: str
) -> dict[str, str]:
    """What the command chooses, with what its releases require: what is there and fits stays."""
    wanted = dict(domains)
    chosen = choose(wanted, python)
    for _ in range(_DEEP):
        more: dict[str, list[str]] = {}
        for owner, release in chosen.items():
            for required in required_by(owner, release, python):
                if required.name not in wanted and required.name not in unknown and releases_of(required.name):
                    more.setdefault(required.name, []).append(required.specifier)
        added = {name: found for name, asked in more.items() if (found := _left(name, asked, there, python))}
        if not added:
            break
        wanted.update(added)
        chosen = choose(wanted, python, domains) or chosen
    return chosen


def _left(name: str, asked: list[str], there: Mapping[str, str], python: str) -> list[str]:
    mine = there.get(name)
    if mine is not None and all(contains(specifier, mine) for specifier in asked):
        return [mine]
    return [row.version for row in releases_of(name) if not row.is_yanked and row.fits(python)]
