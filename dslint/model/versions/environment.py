"""What a project has installed, as far as its files tell: the pins, and what a fresh install takes beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dslint.model.versions.allowed import NOTHING_SAID, STATED, Allowed
from dslint.model.versions.known import release_of, releases_of
from dslint.model.versions.required import required_by
from dslint.model.versions.requirements import FOLLOWED, REQUIRED
from dslint.model.versions.solve import choose

# Requirements of requirements of requirements: further than this nobody has seen a chain.
_DEEP = 4


@dataclass(frozen=True, slots=True)
class Environment:
    """The releases by distribution. ``fresh`` holds the pins, too; ``implied`` are those that no file names."""

    pins: Mapping[str, str] = field(default_factory=dict)
    fresh: Mapping[str, str] = field(default_factory=dict)
    implied: frozenset[str] = frozenset()


@lru_cache(maxsize=64)
def environment(allowed: Allowed) -> Environment:
    """What is installed for scripts of a folder; what comes from elsewhere, and what files exclude, is left out."""
    python = allowed.python.version
    pins: dict[str, str] = {}
    domains: dict[str, list[str]] = {}
    for name in (*FOLLOWED, *REQUIRED):
        found = allowed.of(name)
        if found.state != STATED or found.is_head or found.is_split:
            continue
        if found.is_pin:
            pins[name] = found.releases[0]
        fitting = [r for r in found.releases if (row := release_of(name, r)) and row.fits(python)]
        if name in pins or fitting:
            domains[name] = [pins[name]] if name in pins else fitting
    named = frozenset(domains)
    fresh = choose(domains, python)
    for _ in range(_DEEP):
        more = {
            required.name
            for name, release in fresh.items()
            for required in required_by(name, release, python)
            if required.name not in domains and allowed.of(required.name).state == NOTHING_SAID
        }
        added = {name: fitting for name in sorted(more) if (fitting := _fitting(name, python))}
        if not added:
            break
        domains.update(added)
        fresh = choose(domains, python, named)
    return Environment(pins, fresh, frozenset(domains) - named)


@lru_cache(maxsize=128)
def _fitting(name: str, python: str) -> list[str]:
    return [row.version for row in releases_of(name) if not row.is_yanked and row.fits(python)]
