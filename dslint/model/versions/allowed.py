"""Which releases of a library are allowed for a file: one answer, with the places that bound it.

Several files of a project may speak of a library. Each is one way to install it; what they all allow is the answer, and
where they exclude each other (two files with two pins), what any of them allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dslint.core.source import Location
from dslint.model.versions.answer import NOTHING_SAID, STATED, UNKNOWN, Answer, Key, answered, newest_for

__all__ = [
    "NOTHING_SAID",
    "STATED",
    "UNKNOWN",
    "Allowed",
    "AllowedReleases",
    "Bound",
    "PythonUsed",
    "Way",
    "python_used",
]

# The Python of the long-term releases of Linux distributions, assumed where no file states one.
ASSUMED_PYTHON = "3.12"


@dataclass(frozen=True, slots=True)
class Bound:
    """One place that limits the releases of a library.

    ``specifier`` is PEP 440, empty where the library is named without a range. ``origin`` is ``None`` for a flag.
    ``stated_by`` is the file name or the flag. ``taken_from``: see ``Statement``. ``is_certain``: no extra and no
    marker decides that it holds. ``is_variant``: the file is one of several for different uses
    (``requirements_flux.txt``, ``Dockerfile.rocm``). ``group``: see ``Statement``.
    """

    specifier: str
    origin: Location | None = None
    stated_by: str = ""
    taken_from: str = ""
    is_certain: bool = True
    marker: str = ""
    is_variant: bool = False
    group: str = ""

    @property
    def is_pin(self) -> bool:
        """It names one release."""
        from dslint.model.versions.ranges import pin_of

        return pin_of(self.specifier) is not None

    @property
    def place(self) -> str:
        """``requirements.txt:3``, or the flag."""
        return str(self.origin) if self.origin is not None else self.stated_by


# What one file (with those that it includes) says.
Way = tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class PythonUsed:
    """The Python that a fresh install is assumed to run on: a minor release, why, and where it is stated.

    ``is_stated``: files leave one minor release only.
    """

    version: str = ASSUMED_PYTHON
    why: str = "no file states a Python"
    origin: Location | None = None
    is_stated: bool = False


@dataclass(frozen=True, slots=True)
class AllowedReleases:
    """The releases of one library that the project around a file allows.

    ``ways`` are the files that speak of it, strongest evidence first; none: nothing is said.
    """

    library: str
    ways: tuple[Way, ...] = ()
    python: PythonUsed = field(default_factory=PythonUsed)

    @property
    def state(self) -> str:
        """``nothing said``, ``stated``, or ``unknown`` (a commit, a local copy, a release that no index lists)."""
        return self._answer.state

    @property
    def reason(self) -> str:
        """Why the releases are unknown; empty otherwise."""
        return self._answer.reason

    @property
    def releases(self) -> tuple[str, ...]:
        """The existing releases that are allowed, oldest first; all of them where nothing is said, none if unknown."""
        return self._answer.releases

    @property
    def is_head(self) -> bool:
        """The newest state of the library's own repository is asked for: the newest release, or later."""
        return self.state == STATED and any(bound.taken_from == "git" for bound in self.bounds)

    @property
    def is_split(self) -> bool:
        """Files exclude each other: ``releases`` are what any of them allows."""
        return self._answer.is_split

    @property
    def is_pin(self) -> bool:
        """A file names the one release that is allowed."""
        return len(self.releases) == 1 and self.state == STATED and any(bound.is_pin for bound in self.bounds)

    @property
    def fresh(self) -> str | None:
        """What a fresh install takes today on :attr:`python`; ``None`` where no allowed release fits it, or unknown."""
        answer = self._answer
        return newest_for(self.library, answer.first if answer.is_split else answer.releases, self.python.version)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Every place that speaks of the library, strongest first."""
        return tuple(bound for way in self.ways for bound in way)

    def excluding(self, release: str) -> Bound | None:
        """The first bound that does not allow a release; ``None`` when all do."""
        from dslint.model.versions.ranges import contains

        return next((bound for bound in self.bounds if not contains(bound.specifier, release)), None)

    @property
    def pin(self) -> Bound | None:
        """The strongest bound that names one release."""
        return next((bound for bound in self.bounds if bound.is_pin), None)

    @property
    def foremost(self) -> Bound | None:
        """The bound that speaks for the library: the pin, else the strongest one."""
        return self.pin or next(iter(self.bounds), None)

    @property
    def _answer(self) -> Answer:
        keys = [tuple(Key(b.specifier, b.taken_from, b.is_certain, b.marker) for b in way) for way in self.ways]
        are_variants = tuple(way[0].is_variant for way in self.ways)
        return answered(self.library, tuple(keys), are_variants, self.python.version)


class Allowed:
    """The answers for all libraries in one folder. Files share one; its text, which keys the cache, is made once."""

    __slots__ = ("_text", "by_library", "python")

    def __init__(
        self, by_library: Mapping[str, AllowedReleases] | None = None, python: PythonUsed | None = None
    ) -> None:
        self.by_library = dict(by_library or {})
        self.python = python or PythonUsed()
        self._text = ""

    def of(self, library: str) -> AllowedReleases:
        """The answer for a library by the name of its distribution; ``nothing said`` if no file speaks of it."""
        return self.by_library.get(library) or AllowedReleases(library, (), self.python)

    def __repr__(self) -> str:
        if not self._text:
            from hashlib import blake2b

            text = f"{self.by_library!r} {self.python!r}".encode("utf-8", "surrogatepass")
            self._text = f"Allowed({blake2b(text, digest_size=16).hexdigest()})"
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allowed) and (self is other or repr(self) == repr(other))

    def __hash__(self) -> int:
        return hash(repr(self))


def python_used(stated: AllowedReleases, pins: Mapping[str, str]) -> PythonUsed:
    """The Python that the files of a project leave: the one that they name, else the newest usual one.

    ``pins`` are the releases that are named, by library: a Python that they do not install on is none.
    """
    minors = [release.rpartition(".")[0] for release in stated.releases]
    if stated.state == UNKNOWN or not minors:
        return PythonUsed()
    if len(minors) == 1:
        return PythonUsed(minors[0], "", _stating(stated, minors[0])[1], is_stated=True)
    usual = [minor for minor in minors if int(minor.partition(".")[2]) <= int(ASSUMED_PYTHON.partition(".")[2])]
    fitting = [minor for minor in usual if all(newest_for(name, (pin,), minor) for name, pin in pins.items())]
    chosen = (fitting or usual or minors)[-1]
    why, origin = _stating(stated, chosen)
    if fitting and fitting[-1] != usual[-1]:
        why += f", and {next(n for n, p in pins.items() if not newest_for(n, (p,), usual[-1]))} has no newer one"
    return PythonUsed(chosen, why, origin)


def _stating(stated: AllowedReleases, minor: str) -> tuple[str, Location | None]:
    """Why a Python is one of those that are stated, and where."""
    bounds = stated.bounds
    named = next((bound for bound in bounds if bound.specifier.startswith(f"=={minor}")), None)
    bound = named or next(iter(bounds), None)
    if bound is None:
        return "no file states a Python", None
    return (f"one of the stated ones is {minor}" if named else f"Python {bound.specifier} is stated"), bound.origin
