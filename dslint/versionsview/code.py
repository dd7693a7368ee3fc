"""Which releases of each library the code of a project runs with, and the uses that say so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.core.source import Location, SourceFile
from dslint.engine.projectfiles import ProjectFiles
from dslint.model.context import Context
from dslint.model.versions.known import releases_of
from dslint.parse.reading import Unreadable, decode
from dslint.python.project import Project
from dslint.rules.gonenames import is_missing
from dslint.rules.librarycalls import calls_of, refused_in
from dslint.rules.libraryuses import LibraryUses, tracked_in

# The distribution of a package, where it has another name.
DISTRIBUTIONS = {"pytorch_lightning": "pytorch-lightning"}
_ALL = frozenset({"", "Exception", "BaseException"})
_OF_IMPORTS = _ALL | {"ImportError", "ModuleNotFoundError"}


@dataclass(frozen=True, slots=True)
class Limit:
    """A use that a release does not take, and where it stands."""

    what: str
    place: Location


@dataclass(slots=True)
class CodeNeeds:
    """What scripts need of one library: the first use that each release lacks, and the script that imports it first."""

    package: str
    imported: Location
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
        distribution = DISTRIBUTIONS.get(package, package)
        known = [release.version for release in releases_of(distribution) if not release.is_yanked]
        for release, what, node in (found for release in known for found in _refused(view, package, release)):
            if release not in needs.lacking:
                needs.lacking[release] = Limit(what, view.module.location(node))


def _refused(view: LibraryUses, package: str, release: str) -> Iterator[tuple[str, str, ast.AST]]:
    """The uses of a library that a release lacks or refuses, where nothing catches that."""
    for use in view.found.uses:
        if use.name.partition(".")[0] != package or use.name == package:
            continue
        handled = _ALL | {"AttributeError"} if use.kind == "attribute" else _OF_IMPORTS
        if use.caught & handled or not all(is_missing(view, dotted, release) for dotted in use.dotted):
            continue
        if view.runs(use.guards, package, release):
            yield release, use.name, use.node
    for call in calls_of(view):
        if call.library == package and not call.caught and refused_in(view, call, release):
            if view.runs(call.guards, package, release):
                yield release, f"{call.short}({call.problems[release]})", call.node
