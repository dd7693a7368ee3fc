"""The files of the project around a launch file by the ends of their paths, and the names by which its clone goes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import partial

from dslint.core.source import SourceFile
from dslint.model.workspace import Workspace

# A folder with more files than this is no project: nobody may say that one of them is meant.
MOST_FILES = 60_000
# fmt: off
_SKIPPED = frozenset({
    ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", ".mypy_cache", ".pytest_cache", ".ruff_cache",
    "__pycache__", "node_modules", "site-packages", "_build", "dist",
})
# fmt: on
_PROJECT_NAME = re.compile(r"""^\s*name\s*=\s*["']([\w.-]+)["']""", re.MULTILINE)
_REMOTE = re.compile(r"^\s*url\s*=\s*\S*[/:]([\w.-]+?)(?:\.git)?/?\s*$", re.MULTILINE)
_CLONED = re.compile(r"git clone\s+(?:-\S+\s+)*\S+/([\w.-]+?)(?:\.git)?/?(?=[\s`'\"&;)]|$)")


def top_of(path: str, workspace: Workspace) -> str:
    """The top folder of the project of a file: of its repository, else the last folder that belongs to the run."""
    bases = workspace.bases(path)
    return next((folder for folder in bases if workspace.exists(posixpath.join(folder, ".git"))), bases[-1])


def files_by_name(path: str, workspace: Workspace) -> Mapping[str, Sequence[str]]:
    """The paths of the files of a project by their names; nothing where there are too many."""
    top = top_of(path, workspace)
    return workspace.kept(f"files by name of {top}", partial(_by_name, top, workspace))


def _by_name(top: str, workspace: Workspace) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for path in workspace.files_below(top, _SKIPPED, MOST_FILES):
        found.setdefault(posixpath.basename(path), []).append(path)
    return found


def parts_of(text: str) -> list[str]:
    """The folders and the name of a path, without leading ``./`` and ``../``."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    while parts[:1] == [".."]:
        parts = parts[1:]
    return parts


def files_ending(text: str, path: str, workspace: Workspace) -> list[str]:
    """The files of the project whose paths end like this one, all of its folders included."""
    parts = parts_of(text)
    tail = "/" + "/".join(parts)
    named = files_by_name(path, workspace).get(parts[-1], ()) if parts else ()
    return [found for found in named if f"/{found}".endswith(tail)]


def file_in_image(text: str, path: str, workspace: Workspace) -> str | None:
    """The file of the project that a path in a container means: the one file whose path ends like most of it."""
    parts = parts_of(text)
    for begin in range(len(parts)):
        found = files_ending("/".join(parts[begin:]), path, workspace)
        if found:
            return found[0] if len(found) == 1 else None
    return None


def files_like(text: str, path: str, workspace: Workspace) -> list[str]:
    """The files of the same name that share most folders at the end with a path, at least one."""
    parts = parts_of(text)
    named = files_by_name(path, workspace).get(parts[-1], ()) if parts else ()
    shared = {found: _shared(parts, found.split("/")) for found in named}
    most = max(shared.values(), default=0)
    return [found for found, count in shared.items() if count == most] if most > 1 else []


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if left != right:
            break
        count += 1
    return count


def inside_clone(cwd: str, path: str, workspace: Workspace) -> str | None:
    """Where ``cd NAME/sub`` leads when NAME is what the clone is called, from its top on; ``None`` for other folders.

    A folder of the project with that name wins.
    """
    top = top_of(path, workspace)
    parts = [part for part in cwd.split("/") if part not in ("", ".")]
    if not parts or any(workspace.exists(posixpath.join(base, cwd)) for base in workspace.bases(path)):
        return None
    names = clone_names(top, workspace)
    # Nobody knows what stands above the clone: of an absolute path the last such folder counts.
    is_far = cwd.startswith(("/", "~", "$")) or parts[0] == ".."
    at = next((i for i in range(len(parts) - 1, -1, -1) if _plain(parts[i]) in names), None)
    if at is None or (at > 0 and not is_far):
        return None
    inner = posixpath.join(top, *parts[at + 1 :]) if parts[at + 1 :] else top
    return inner if workspace.exists(inner or ".") else None


def below_clone(text: str, path: str, workspace: Workspace) -> str | None:
    """The file that ``NAME/folder/file`` means from above the clone, when NAME is what that is called."""
    top = top_of(path, workspace)
    first, _, rest = text.removeprefix("./").partition("/")
    if not rest or _plain(first) not in clone_names(top, workspace):
        return None
    return workspace.resolve(rest, (top,))


def clone_names(top: str, workspace: Workspace) -> frozenset[str]:
    """What the folder of the clone may be called, in one spelling."""
    return workspace.kept(f"names of the clone {top}", partial(_names, top, workspace))


def _names(top: str, workspace: Workspace) -> frozenset[str]:
    """What the folder of the clone is called: here, at its origin, in its README, and as a package."""
    found = [posixpath.basename((workspace.root / top).absolute().as_posix())]
    for name, pattern in (
        ("pyproject.toml", _PROJECT_NAME),
        ("setup.py", _PROJECT_NAME),
        (".git/config", _REMOTE),
        ("README.md", _CLONED),
    ):
        source = workspace.read(posixpath.join(top, name))
        found += _first(pattern, source)
    return frozenset(map(_plain, found)) - {""}


def _first(pattern: re.Pattern[str], source: SourceFile | None) -> list[str]:
    match = pattern.search(source.text) if source is not None else None
    return [match[1]] if match else []


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
