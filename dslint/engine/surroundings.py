"""What stands around the given files: library versions, and launch files that use a given config or script."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, absent, known
from dslint.core.source import SourceFile
from dslint.engine.gitindex import repository
from dslint.engine.neighbours import is_root, project_root, up_to_root
from dslint.model.context import Context, Locked, VersionFact
from dslint.model.versions.allowed import Allowed
from dslint.parse.reading import Unreadable, read_text
from dslint.python.vocabulary import Vocabulary

if TYPE_CHECKING:
    from dslint.model.plan.stated import StatedCounts
    from dslint.model.versions.allowed import Way
    from dslint.model.versions.requirements import Statement
    from dslint.settings import Settings
    from dslint.settings.stated import Stated, StatedLaunch

# Files that say what is installed, those that tell a person what to install, and workflows; the first speak first.
KINDS = ("files", "told", "ci")
# A lock file of a large project has some MB.
_LOCK_LIMIT = 20_000_000
# A requirements file that takes in more than this many others is generated, or a trap.
_INCLUDE_LIMIT = 50


class Surroundings:
    """Facts that hold for a whole folder; each folder is read once.

    ``installed`` are the versions of the libraries that a run on this machine finds: then no file is asked for them.
    """

    def __init__(
        self, settings: Settings, overrides: Mapping[str, str], installed: Mapping[str, VersionFact] | None = None
    ) -> None:
        self.overrides = overrides
        self._installed = installed
        self._settings = settings
        self._stated_versions = {**_stated_versions(settings), **(installed or {})}
        self._readers = [(glob, _matcher(glob), reader) for glob, reader in settings.consumers.items()]
        self._launches = [(glob, _matcher(glob), stated) for glob, stated in settings.stated_in.items()]
        self.stated = Context(
            deepspeed=self._stated_versions.get("deepspeed", VersionFact()),
            vocabulary=vocabulary_of(settings),
        )
        self._versions: dict[tuple[str, bool], dict[str, VersionFact]] = {}
        self._libraries: dict[str, dict[str, VersionFact]] = {}
        # What holds for every file of a folder; empty where the settings speak of single files.
        self._contexts: dict[str, Context] = {}
        # The same for scripts, with the context that it was made of.
        self._of_scripts: dict[str, tuple[Context, Context]] = {}
        self._locks: dict[str, Locked | None] = {}
        # What each file of a folder states, by the kind of files: see `_stated_in`.
        self._statements: dict[tuple[str, str], list[tuple[SourceFile, list[tuple[SourceFile, Statement]]]]] = {}
        self._ways: dict[tuple[str, str], dict[str, tuple[Way, ...]]] = {}
        self._allowed: dict[str, Allowed] = {}
        # For which folders a file was read, as what kind of file, and what the files of a folder alone say.
        self._read_for: dict[str, set[tuple[str, str]]] = {}
        self._stated_in: dict[tuple[str, str], dict[str, VersionFact]] = {}

    def renewed(self, overrides: Mapping[str, str], changed: Collection[str]) -> Surroundings:
        """These over other texts of some files: themselves where all that they were asked for stays the same."""
        other = Surroundings(self._settings, overrides, self._installed)
        # A file is read for its own folder, or included by one that is.
        asked = {key for path in changed for key in self._read_for.get(path, ())}
        if any(not self._is_same_in(other, folder, kind) for folder, kind in asked):
            return other
        is_read = any(path in self._read_for or self._is_lock(path) for path in changed)
        if is_read and any(other._locked_at(folder) != found for folder, found in self._locks.items()):
            return other
        self.overrides = overrides
        for key in asked:  # their places in the text are new
            self._statements.pop(key, None)
        return self

    def _is_same_in(self, other: Surroundings, folder: str, kind: str) -> bool:
        """Whether the files of a folder say in `other` what they say here."""
        key = (folder, kind)
        if key in self._stated_in and other._read_versions(folder, kind) != self._stated_in[key]:
            return False
        return key not in self._ways or other._ways_in(folder, kind) == self._ways[key]

    @staticmethod
    def _is_lock(path: str) -> bool:
        from dslint.model.versions.locked import is_lock

        return is_lock(path.rpartition("/")[2])

    def context(self, path: str, joined: Context | None = None) -> Context:
        """The context of a file: what the user states, what its run plans say, then the project.

        For the world size a plan comes first: the user states it for files of which no command says more.
        """
        beside = os.path.dirname(path)
        is_plain = joined is None and not (self._readers or self._launches)
        if is_plain and beside in self._contexts:
            return self._contexts[beside]
        versions = self._versions_for(os.path.dirname(os.path.abspath(path)))
        base = joined or self.stated_at(path)
        found = replace(
            base,
            world_size=base.world_size.or_else(self._stated_world(path)),
            deepspeed=versions.get("deepspeed") or VersionFact(),
            libraries={name: fact for name, fact in versions.items() if name != "deepspeed"},
            consumer=self.stated_consumer(path).or_else(base.consumer),
            vocabulary=self.stated.vocabulary,
        )
        if is_plain:
            self._contexts[beside] = found
        return found

    def script_context(self, path: str, joined: Context | None = None) -> Context:
        """The same for a script: only scripts ask which releases the project allows."""
        plain = self.context(path, joined)
        folder = os.path.dirname(path)
        known = self._of_scripts.get(folder)
        # One object for all that share it: whoever looks again compares contexts.
        if known is not None and known[0] is plain:
            return known[1]
        found = replace(plain, allowed=self.allowed(path))
        self._of_scripts[folder] = plain, found
        return found

    def _versions_for(self, folder: str) -> dict[str, VersionFact]:
        """The versions that hold in a folder: what the user states, else its project, else what it tells a person."""
        if self._installed is not None:
            return self._stated_versions
        if folder not in self._libraries:
            versions = {**self._versions_at(folder), **self._stated_versions}
            if "deepspeed" not in versions or "transformers" not in versions:
                versions = {**self._versions_at(folder, told=True), **versions}
            self._libraries[folder] = versions
        return self._libraries[folder]

    def stated_at(self, path: str) -> Context:
        """What the user states about a file."""
        return replace(self.stated, world_size=self._stated_world(path))

    def stated_counts(self, path: str) -> StatedCounts:
        """How many nodes and processes the user states for the commands or configs in a file."""
        from dslint.model.plan.stated import StatedCounts

        found = self._launch_of(path)
        return StatedCounts(_fact(found.nnodes), _fact(found.nproc_per_node), _fact(found.world_size))

    def _stated_world(self, path: str) -> Fact[int]:
        found = self._launch_of(path)
        # One number alone needs no arithmetic: a config by itself must not load the readers of launch commands.
        return (
            _fact(found.world_size) if None in (found.nnodes, found.nproc_per_node) else self.stated_counts(path).total
        )

    def _launch_of(self, path: str) -> StatedLaunch:
        found = self._settings.stated
        relative = self._relative(path) if self._launches else ""
        for glob, matches, stated in self._launches:
            if relative == glob or matches(relative):
                found = found.under(stated)
        return found

    def stated_consumer(self, path: str) -> Fact[str]:
        """Who reads a config, if the user says so: a file pattern, else the one reader of all files."""
        relative = self._relative(path) if self._readers else ""
        for glob, matches, reader in reversed(self._readers):
            if relative == glob or matches(relative):
                return known(reader)
        return known(self._settings.consumer) if self._settings.consumer else absent()

    def _relative(self, path: str) -> str:
        """The path as patterns of the settings see it."""
        return os.path.relpath(os.path.abspath(path), self._settings.root).replace(os.sep, "/")

    def locked(self, path: str) -> Locked | None:
        """What the nearest lock above a file installs, with what the file and others of the project install beside."""
        from dslint.model.versions.locked import named_elsewhere

        folder = os.path.dirname(os.path.abspath(path))
        if self._installed is not None:
            return None
        if folder not in self._locks:
            self._locks[folder] = self._locked_at(folder)
        found, source = self._locks[folder], self._source(path)
        if found is None or source is None:
            return found
        return replace(found, names=found.names.union(named_elsewhere(source.text, is_list=False)))

    def _locked_at(self, folder: str) -> Locked | None:
        from dslint.model.versions.locked import is_lock, locked_packages, named_elsewhere
        from dslint.model.versions.resolve import told_files, version_files

        locks: list[Locked] = []
        beside: set[str] = set()
        for at in up_to_root(folder):
            inner = self._names_in(os.path.join(at, "requirements"))
            names = [*self._names_in(at), *(f"requirements/{name}" for name in inner)]
            lists = {*version_files(names), *(name for name in names if is_lock(name.rpartition("/")[2]))}
            is_nearest = not locks
            for name in (*lists, *told_files(names)):
                source = self._source(os.path.join(at, name))
                lock = locked_packages(source) if source is not None and name in lists else None
                if lock is not None and is_nearest:
                    locks.append(lock)
                elif lock is None and source is not None:
                    beside.update(named_elsewhere(source.text, is_list=name in lists))
        locks.sort(key=lambda lock: lock.origin.path)
        return replace(locks[0], names=locks[0].names.union(beside, *(lock.names for lock in locks))) if locks else None

    def _versions_at(self, folder: str, told: bool = False) -> dict[str, VersionFact]:
        """Versions by library; the nearest folder that states one wins, up to the root of the repository.

        ``told``: from the files that tell a person what to install.
        """
        known_here = self._versions.get((folder, told))
        if known_here is not None:
            return known_here
        found: dict[str, VersionFact] = {}
        parent = os.path.dirname(folder)
        if not is_root(folder):
            found.update(self._versions_at(parent, told))
        found.update(self._read_versions(folder, "told" if told else "files"))
        self._versions[(folder, told)] = found
        return found

    def _read_versions(self, folder: str, kind: str) -> dict[str, VersionFact]:
        from dslint.model.versions.resolve import facts_of, stronger

        found: dict[str, VersionFact] = {}
        for _, stated in self.files_in(folder, kind):
            for library, fact in facts_of(stated).items():
                found[library] = stronger(found[library], fact) if library in found else fact
        self._stated_in[folder, kind] = found
        return found

    def files_in(self, folder: str, kind: str = "files") -> list[tuple[SourceFile, list[tuple[SourceFile, Statement]]]]:
        """What the files of a folder state of libraries and of Python, strongest evidence first, a list for each file.

        ``kind`` is one of :data:`KINDS`.
        """
        if (folder, kind) not in self._statements:
            self._statements[folder, kind] = list(self._read_statements(folder, kind))
        return self._statements[folder, kind]

    def _read_statements(
        self, folder: str, kind: str
    ) -> Iterator[tuple[SourceFile, list[tuple[SourceFile, Statement]]]]:
        from dslint.model.versions.resolve import statements_of, told_files, version_files, workflow_files

        names = self._names_in(folder)
        if kind == "ci":
            names = self._names_in(os.path.join(folder, ".github", "workflows")) if ".github" in names else []
        for name in {"files": version_files, "told": told_files, "ci": workflow_files}[kind](names):
            source = self._source(os.path.join(folder, name))
            included = self._included(source, folder) if source is not None else []
            shown = os.path.relpath(os.path.join(folder, name)).replace(os.sep, "/")
            for path in (shown, *(one.path for one in included)):
                self._read_for.setdefault(path, set()).add((folder, kind))
            if source is not None:
                yield source, statements_of(source, included)

    def allowed(self, path: str) -> Allowed:
        """Which releases of each library the project around a file allows: the nearest folder that names it says so."""
        folder = os.path.dirname(os.path.abspath(path))
        return self._allowed_at(folder)

    def _allowed_at(self, folder: str) -> Allowed:
        if folder not in self._allowed:
            # Most folders say nothing of their own, and share the answer.
            is_own = (
                is_root(folder) or self._installed is not None or any(self._ways_in(folder, kind) for kind in KINDS)
            )
            found = self._allowed_for(folder) if is_own else self._allowed_at(os.path.dirname(folder))
            self._allowed[folder] = found
        return self._allowed[folder]

    def _allowed_for(self, folder: str) -> Allowed:
        from dslint.model.versions.ways import allowed_by

        if self._installed is not None:
            return allowed_by(self._stated_versions, ())
        folders = list(up_to_root(folder))
        return allowed_by(self._stated_versions, [self._ways_in(at, kind) for kind in KINDS for at in folders])

    def _ways_in(self, folder: str, kind: str) -> dict[str, tuple[Way, ...]]:
        from dslint.model.versions.ways import ways_by_library

        if (folder, kind) not in self._ways:
            self._ways[folder, kind] = ways_by_library(stated for _, stated in self.files_in(folder, kind))
        return self._ways[folder, kind]

    def _names_in(self, folder: str) -> list[str]:
        """The names of what stands in a folder, or is given as text in it."""
        try:
            names = set(os.listdir(folder))
        except OSError:
            names = set()
        shown = os.path.relpath(folder).replace(os.sep, "/") if self.overrides else ""
        names.update(path.rpartition("/")[2] for path in self.overrides if (os.path.dirname(path) or ".") == shown)
        return sorted(names)

    def _source(self, path: str) -> SourceFile | None:
        shown = os.path.relpath(path).replace(os.sep, "/")
        text = self.overrides.get(shown) or read_text(shown, _LOCK_LIMIT)
        return None if isinstance(text, Unreadable) else SourceFile(shown, text)

    def _included(self, first: SourceFile, folder: str) -> list[SourceFile]:
        """What a requirements file takes in with ``-r`` and ``-c``, each file once, none outside the project."""
        from dslint.model.versions.includes import included_paths
        from dslint.model.versions.requirements import is_requirements

        if not is_requirements(first.path):
            return []
        root = self._root(folder)
        sources = [first]
        seen = {os.path.realpath(first.path)}
        for source in sources:  # grows while it is walked
            for path in included_paths(source):
                real = os.path.realpath(os.path.join(os.path.dirname(source.path), path))
                if real in seen or len(seen) > _INCLUDE_LIMIT or not real.startswith(root):
                    continue
                seen.add(real)
                found = self._source(os.path.normpath(os.path.join(os.path.dirname(source.path), path)))
                if found is not None:
                    sources.append(found)
        return sources[1:]

    def _root(self, folder: str) -> str:
        """The real path of the project around a folder, with a slash at its end."""
        return os.path.join(os.path.realpath(repository(folder) or project_root(folder)), "")


def vocabulary_of(settings: Settings) -> Vocabulary:
    """The names that the settings add."""
    names = settings.names
    return Vocabulary(names.guards, names.collectives, names.trainers, names.engines)


def _stated_versions(settings: Settings) -> dict[str, VersionFact]:
    """Versions that flags or settings name, by library; these beat every file."""
    given = {
        library: getattr(settings, f"{library}_version") for library in ("deepspeed", "transformers", "accelerate")
    }
    if not any(given.values()):
        return {}
    from dslint.model.versions.resolve import stated_version

    return {name: stated_version(text, f"--{name}-version") for name, text in given.items() if text}


def _fact(stated: Stated | None) -> Fact[int]:
    """A number of the user: the line of the settings is its place, a flag its reason."""
    if stated is None:
        return absent()
    return known(stated.value, stated.place) if stated.place else Fact("known", stated.value, (), stated.by)


def _matcher(glob: str) -> Callable[[str], bool]:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines([glob]).match_file
