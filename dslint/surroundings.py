"""What stands around the given files: library versions, and launch files that use a given config or script."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from dslint.core.fact import absent, known
from dslint.core.source import SourceFile
from dslint.gitindex import repository
from dslint.model.context import Context, VersionFact
from dslint.parse.reading import Unreadable, read_text

# A lock file of a large project has some MB.
_LOCK_LIMIT = 20_000_000
# A requirements file that takes in more than this many others is generated, or a trap.
_INCLUDE_LIMIT = 50
# How many entries the search for neighbouring launch files looks at: it must stay invisible in a hook.
_NEIGHBOUR_LIMIT = 3_000
# How far above a file its project may begin.
_LEVELS = 6


class Surroundings:
    """Facts that hold for a whole folder; each folder is read once."""

    def __init__(self, world_size: int | None, deepspeed_version: str | None, overrides: Mapping[str, str]) -> None:
        self.overrides = overrides
        self.stated = Context(
            world_size=known(world_size) if world_size else absent(),
            deepspeed=_stated(deepspeed_version) if deepspeed_version else VersionFact(),
        )
        self._versions: dict[str, dict[str, VersionFact]] = {}

    def context(self, path: str, joined: Context | None = None) -> Context:
        """The context of a file: what its run plans say, then what the user states, then the project."""
        versions = self._versions_at(os.path.dirname(os.path.abspath(path)))
        base = joined or self.stated
        deepspeed = self.stated.deepspeed if self.stated.deepspeed.is_known else versions.get("deepspeed")
        return replace(
            base,
            world_size=base.world_size.or_else(self.stated.world_size),
            deepspeed=deepspeed or VersionFact(),
            libraries={name: fact for name, fact in versions.items() if name != "deepspeed"},
        )

    def _versions_at(self, folder: str) -> dict[str, VersionFact]:
        """Versions by library; the nearest folder that states one wins, up to the root of the repository."""
        known_here = self._versions.get(folder)
        if known_here is not None:
            return known_here
        found: dict[str, VersionFact] = {}
        parent = os.path.dirname(folder)
        at_root = parent == folder or os.path.exists(os.path.join(folder, ".git"))
        if not at_root and len(folder) > len(os.path.expanduser("~").rstrip("/")):
            found.update(self._versions_at(parent))
        found.update(self._read_versions(folder))
        self._versions[folder] = found
        return found

    def _read_versions(self, folder: str) -> dict[str, VersionFact]:
        from dslint.model.versions.resolve import parse_versions, stronger, version_files

        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return {}
        found: dict[str, VersionFact] = {}
        for name in version_files(names):
            source = self._source(os.path.join(folder, name))
            if source is None:
                continue
            for library, fact in parse_versions(source, self._included(source, folder)).items():
                found[library] = stronger(found[library], fact) if library in found else fact
        return found

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
        return os.path.join(os.path.realpath(repository(folder) or _project_root(folder)), "")


def _stated(version: str) -> VersionFact:
    from dslint.model.versions.resolve import stated_version

    return stated_version(version)


def neighbouring_launch_files(paths: list[str]) -> list[str]:
    """Shell files of the project around the given files, for joins that a partial run would miss."""
    from dslint.discovery import BUILTIN_EXCLUDES, kind_of

    roots = {_project_root(os.path.dirname(os.path.abspath(p))): os.path.isabs(p) for p in paths}
    found: list[str] = []
    budget = _NEIGHBOUR_LIMIT
    for root, absolute in sorted(roots.items()):
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if f not in BUILTIN_EXCLUDES and not f.startswith("."))
            budget -= len(names) + len(folders)
            if budget < 0:
                return found
            launch = (os.path.join(folder, name) for name in sorted(names) if kind_of(name) == "shell")
            # Spelled as the given file is, so that the two meet in one plan.
            found += [p if absolute else os.path.relpath(p).replace(os.sep, "/") for p in launch]
    return found


def _project_root(folder: str) -> str:
    """The nearest folder above with a project file; the folder itself outside any project."""
    above = [folder]
    while len(above) <= _LEVELS and os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    for marks in ((".git", "pyproject.toml", "setup.py"), ("requirements.txt", "README.md", "scripts")):
        for at in above:
            if any(os.path.exists(os.path.join(at, mark)) for mark in marks):
                return at
    return folder
