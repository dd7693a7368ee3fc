"""The window of a project: what its files allow, what its code runs with, and what goes together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dslint.engine.discovery import discover
from dslint.engine.inputs import sort_files
from dslint.engine.planning import excludes_of
from dslint.engine.surroundings import Surroundings
from dslint.model.context import Context
from dslint.model.versions.allowed import STATED, AllowedReleases, PythonUsed
from dslint.model.versions.importing import importable
from dslint.model.versions.known import package_of, release_of, releases_of
from dslint.model.versions.requirements import FOLLOWED
from dslint.settings import Settings
from dslint.versionsview.code import CodeNeeds, CodeReader, Limit


@dataclass(frozen=True, slots=True)
class LibraryWindow:
    """One library: what files say, which releases the code runs with, both together, and what to pin.

    ``works`` are the releases that are known to have all that the code uses. ``below`` and ``above`` are the uses that
    the releases next to them lack. ``together`` are those that the files allow and of which nothing is known to lack.
    """

    library: str
    allowed: AllowedReleases
    needs: CodeNeeds | None
    works: tuple[str, ...]
    below: Limit | None
    above: Limit | None
    together: tuple[str, ...]
    pin: str | None = None

    @property
    def is_limited(self) -> bool:
        """The code does not run with every release."""
        return bool(self.needs and self.needs.lacking)


@dataclass(frozen=True, slots=True)
class Window:
    """All libraries of a project, the Python that is assumed, and paths that do not exist."""

    python: PythonUsed
    libraries: tuple[LibraryWindow, ...]
    files: int
    problems: tuple[str, ...] = field(default=())


def window_of(paths: Sequence[str], settings: Settings) -> Window:
    """Read the scripts and requirement files of a project."""
    found = discover(paths, excludes_of(settings))
    inputs, _ = sort_files(found, {})
    surroundings = Surroundings(settings, {})
    reader = CodeReader()
    for path, raw in inputs.scripts.items():
        reader.read(path, raw, Context(allowed=surroundings.allowed(path)))
    # What stands above all scripts speaks for the project.
    allowed = surroundings.allowed(f"{paths[0].rstrip('/')}/any" if len(paths) == 1 else "any")
    names = [
        name for name in FOLLOWED
        if allowed.of(name).bounds or reader.needs.get(package_of(name)) is not None
    ]  # fmt: skip
    windows = [_window(allowed.of(name), reader.needs.get(package_of(name))) for name in names]
    pins = _pins(windows, allowed.python.version)
    return Window(
        allowed.python,
        tuple(_with_pin(window, pins.get(window.library)) for window in windows),
        inputs.files,
        tuple(found.missing),
    )


def _window(allowed: AllowedReleases, needs: CodeNeeds | None) -> LibraryWindow:
    usual = [release.version for release in releases_of(allowed.library) if not release.is_yanked]
    lacking: Mapping[str, Limit] = needs.lacking if needs is not None else {}
    read = needs.read if needs is not None else {}
    works = tuple(release for release in usual if release in read and release not in lacking)
    below = above = None
    if works and lacking:
        known = list(read)
        first, last = known.index(works[0]), known.index(works[-1])
        below = lacking.get(known[first - 1]) if first else None
        above = lacking.get(known[last + 1]) if last + 1 < len(known) else None
    stated = allowed.releases if allowed.state == STATED else tuple(usual)
    together = tuple(release for release in stated if release not in lacking)
    return LibraryWindow(allowed.library, allowed, needs, works, below, above, together)


def _with_pin(window: LibraryWindow, pin: str | None) -> LibraryWindow:
    return LibraryWindow(
        window.library, window.allowed, window.needs, window.works, window.below, window.above, window.together, pin
    )


def _pins(windows: Sequence[LibraryWindow], python: str) -> dict[str, str]:
    """The newest releases that install and import together on this Python; empty where none were found."""
    domains = {}
    for window in windows:
        fitting = [r for r in window.together if (found := release_of(window.library, r)) and found.fits(python)]
        if fitting and not window.allowed.reason:
            domains[window.library] = fitting
    return importable(domains, python)


def allowed_text(allowed: AllowedReleases) -> str:
    """What the files say, in one phrase: ``==4.37.2``, ``>=4.30``, ``any release``."""
    if not allowed.bounds:
        return "nothing said"
    bound = allowed.pin or next((bound for bound in allowed.bounds if bound.specifier), allowed.bounds[0])
    source = {"git": "the newest of its repository", "commit": "a commit", "folder": "a local copy"}
    return bound.specifier or source.get(bound.taken_from, "any release")
