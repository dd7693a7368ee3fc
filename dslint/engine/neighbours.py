"""The folders around a file: where its project begins, and what else of the project stands there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

# How many entries the search for neighbouring launch files looks at: it must stay invisible in a hook.
_NEIGHBOUR_LIMIT = 3_000
# How far above a file its project may begin.
_LEVELS = 6


def is_root(folder: str) -> bool:
    """The search for project files ends here: the root of a repository, the home of the user, the root of the disk."""
    if os.path.dirname(folder) == folder or os.path.exists(os.path.join(folder, ".git")):
        return True
    return len(folder) <= len(os.path.expanduser("~").rstrip("/"))


def up_to_root(folder: str) -> Iterator[str]:
    """Yield a folder and those around it, up to the one where the search for project files ends."""
    yield folder
    while not is_root(folder):
        folder = os.path.dirname(folder)
        yield folder


def neighbouring_files(paths: list[str], kinds: Collection[str]) -> list[tuple[str, str]]:
    """Files of the project around the given ones with their kind, for joins that a partial run would miss."""
    from dslint.engine.discovery import BUILTIN_EXCLUDES, kind_of

    roots = {project_root(os.path.dirname(os.path.abspath(p))): os.path.isabs(p) for p in paths}
    found: list[tuple[str, str]] = []
    budget = _NEIGHBOUR_LIMIT
    for root, absolute in sorted(roots.items()):
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if f not in BUILTIN_EXCLUDES and not f.startswith("."))
            budget -= len(names) + len(folders)
            if budget < 0:
                return found
            for name in sorted(names):
                if (kind := kind_of(name)) in kinds:
                    path = os.path.join(folder, name)
                    # Spelled as the given file is, so that the two meet in one plan.
                    found.append((path if absolute else os.path.relpath(path).replace(os.sep, "/"), kind))
    return found


def project_root(folder: str) -> str:
    """The nearest folder above with a project file; the folder itself outside any project."""
    above = [folder]
    while len(above) <= _LEVELS and os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    for marks in ((".git", "pyproject.toml", "setup.py"), ("requirements.txt", "README.md", "scripts")):
        for at in above:
            if any(os.path.exists(os.path.join(at, mark)) for mark in marks):
                return at
    return folder
