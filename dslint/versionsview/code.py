"""Which releases of each library the code of a project runs with, and the uses that say so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.core.source import Location, SourceFile
from dslint.engine.projectfiles import ProjectFiles
from dslint.model.context import Context
from dslint.model.standing.presence import read_as
from dslint.model.versions.known import distribution_of, releases_of
from dslint.parse.reading import Unreadable, decode
from dslint.python.project import Project
from dslint.rules.libraryuses import LibraryUses, tracked_in
from dslint.rules.names.gonenames import CAUGHT, is_missing
from dslint.rules.names.librarycalls import LibraryCall, calls_of, refused_in

if TYPE_CHECKING:
    from dslint.model.surface import Surface
    from dslint.python.uses.kinds import Use


@dataclass(frozen=True, slots=True)
class Limit:
    """A use that a release does not take, and where it stands."""

    what: str
    place: Location


@dataclass(slots=True)
class CodeNeeds:
    """What scripts need of one library: the first use that each release lacks, and the script that imports it first.

    ``read`` are the releases whose names are known -> the release that was read for each.
    """

    package: str
    imported: Location
    read: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, Limit] = field(default_factory=dict)


class CodeReader:
    """Reads the scripts of a project, one after the other."""

    def __init__(self) -> None:
        self.needs: dict[str, CodeNeeds] = {}
        self._modules = Project(ProjectFiles())

    def read(self, path: str, raw: bytes, context: Context) -> None:
        """Take in what one script needs; a script that Python cannot read needs nothing."""
        text = decode(raw)
        if isinstance(text, Unreadable):
            return
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        absolute = self._modules.files.absolute(path)
        libraries = frozenset(
            top for top in tracked_in(tree) if not self._modules.holds(("script", absolute), absolute, top)
        )
        if not libraries:
            return
        view = LibraryUses(SourceFile(path, text), tree, context, libraries)
        for use in view.found.uses:
            package = use.name.partition(".")[0]
            if package in libraries:
                self.needs.setdefault(package, CodeNeeds(package, view.module.location(use.node)))
        for package in libraries & self.needs.keys():
            self._look(view, package)

    def _look(self, view: LibraryUses, package: str) -> None:
        needs = self.needs[package]
        surface = view.surface(package)
        if surface is None:
            return
        if not needs.read:
            usual = (release.version for release in releases_of(distribution_of(package)) if not release.is_yanked)
            needs.read = {release: read for release in usual if (read := read_as(surface, release))}
        standing_for: dict[str, list[str]] = {}
        for release, read in needs.read.items():
            standing_for.setdefault(read, []).append(release)
        limits: list[tuple[list[str], Limit]] = []
        for use in _rare(view, surface, package):
            failing = [read for read in standing_for if _is_lacking(view, use, package, read)]
            limits.append((failing, Limit(use.name, view.module.location(use.node))))
        for call in _different(view, package):
            failing = [read for read in standing_for if refused_in(view, call, read)]
            failing = [read for read in failing if view.runs(call.guards, package, read)]
            problem = call.problems[failing[0]] if failing else ""
            limits.append((failing, Limit(f"{call.short}: {problem}", view.module.location(call.node))))
        for failing, limit in limits:
            # What no release takes is nothing that another release would cure, and may be the program's own.
            if len(failing) < len(standing_for):
                for release in (release for read in failing for release in standing_for[read]):
                    needs.lacking.setdefault(release, limit)


def _rare(view: LibraryUses, surface: Surface, package: str) -> Iterator[Use]:
    """The uses of names that not every release has, and whose lack nobody handles; each name once for its guards."""
    seen: set[tuple[object, ...]] = set()
    for use in view.found.uses:
        handled = CAUGHT["attribute" if use.kind == "attribute" else "module"]
        if use.name.partition(".")[0] != package or use.name == package or use.caught & handled:
            continue
        key = (use.dotted, use.guards)
        if key in seen or any(len(surface.presence(name).in_releases) == len(surface.releases) for name in use.dotted):
            continue
        seen.add(key)
        yield use


def _is_lacking(view: LibraryUses, use: Use, package: str, release: str) -> bool:
    return all(is_missing(view, dotted, release) for dotted in use.dotted) and view.runs(use.guards, package, release)


def _different(view: LibraryUses, package: str) -> Iterator[LibraryCall]:
    """The calls of a library, those that give the same arguments under the same guards once."""
    seen: set[tuple[object, ...]] = set()
    for call in calls_of(view):
        key = (call.dotted, call.given, call.names, call.is_open, call.guards)
        if call.library == package and not call.caught and key not in seen:
            seen.add(key)
            yield call
