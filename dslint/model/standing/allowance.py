"""Which releases of a library a project may run with, as far as their surface is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dslint.model.context import Context, VersionFact
from dslint.model.versions.resolve import covers, is_pin

_NOBODY = VersionFact()
# Distributions under whose name a library of another package is stated.
_STATED_AS = {"pytorch_lightning": "lightning"}


@dataclass(frozen=True, slots=True)
class Allowance:
    """``releases`` may be installed, oldest first; a fresh install takes ``fresh``. ``fact``: who says so."""

    library: str
    releases: tuple[str, ...]
    fresh: str
    fact: VersionFact

    @property
    def is_stated(self) -> bool:
        """The project says something of the library."""
        return self.fact.is_known

    @property
    def is_one(self) -> bool:
        """The project pins one release."""
        return self.is_stated and is_pin(self.fact)


def allowance(library: str, known: tuple[str, ...], context: Context) -> Allowance:
    """What a project allows of the releases that are known of a library, oldest first."""
    name = _STATED_AS.get(library, library)
    fact = context.deepspeed if name == "deepspeed" else context.libraries.get(name, _NOBODY)
    allowed = _within(fact.specifier, known, name) if fact.is_known else known
    return Allowance(library, allowed, allowed[-1] if allowed else "", fact)


@lru_cache(maxsize=512)
def _within(specifier: str, known: tuple[str, ...], name: str) -> tuple[str, ...]:
    stated = tuple(r for r in known if covers(VersionFact(f"=={r}"), specifier, name) == "yes")
    pin = specifier.removeprefix("==")
    return stated or tuple(filter(None, [_like(pin, known)]))


def _like(release: str, known: tuple[str, ...]) -> str:
    """The release that stands for a patch of which nothing is known: the nearest one of the same minor release."""
    patches = [other for other in known if other.split(".")[:2] == release.split(".")[:2]]
    return patches[0] if patches else ""
