"""Read-only, cached access to the files next to the one that is judged."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from dslint.core.source import SourceFile
from dslint.parse.reading import read_text

if TYPE_CHECKING:
    from dslint.parse.data import DataDoc

T = TypeVar("T")

# A launch script deeper than this below its repository's top is unheard of; the bound keeps look-ups cheap.
_MAX_PARENTS = 12


class Workspace:
    """The files that a run names, by the path that the user sees.

    Paths are relative to ``root`` (the working directory) with ``/``; absolute ones stay absolute unless they
    lie below ``root``. ``overrides`` replace or add files (standard input, tests). ``is_start``: the commands are
    started there, now and on this machine, so that what is not there is nowhere. ``interprets``: questions about
    scripts may run them in the interpreter. Nothing here raises for a missing or unreadable file, and nothing but
    regular files is ever opened.
    """

    def __init__(
        self, root: Path = Path("."), overrides: Mapping[str, str] | None = None, is_start: bool = False
    ) -> None:
        self.root = root
        self.is_start = is_start
        self.interprets = True
        self._top = os.fspath(root)
        self._overrides = {posixpath.normpath(path): text for path, text in (overrides or {}).items()}
        self._override_dirs = {
            parent for path in self._overrides for parent in _parents(posixpath.dirname(path)) if parent
        }
        self._sources: dict[str, SourceFile | None] = {}
        self._exists: dict[str, bool] = {}
        self._files: dict[str, bool] = {}
        self._has: dict[tuple[str, str], bool] = {}
        self._normal: dict[str, str] = {}
        self._bases: dict[str, tuple[str, ...]] = {}
        self._memo: dict[tuple[str, str], object] = {}

    def normal(self, path: str) -> str:
        """The one spelling of a path: no ``./``, no ``a/../b``, relative when it lies below the root."""
        found = self._normal.get(path)
        if found is None:
            found = posixpath.normpath(path)
            if found.startswith("/"):
                top = self.root.absolute().as_posix().rstrip("/")
                found = found[len(top) + 1 :] if found.startswith(top + "/") else found
            self._normal[path] = found
        return found

    def at(self, folder: str, path: str) -> str:
        """The same for a path that is named in a folder."""
        return self.normal(path if not folder or path.startswith("/") else f"{folder.rstrip('/')}/{path}")

    def read(self, path: str) -> SourceFile | None:
        """The text of a file; ``None`` when it is missing, no regular file, too large or not UTF-8."""
        path = self.normal(path)
        if path not in self._sources:
            text = self._overrides.get(path)
            if text is None:
                found = read_text(self._absolute(path))
                text = found if isinstance(found, str) else None
            self._sources[path] = None if text is None else SourceFile(path, text)
        return self._sources[path]

    def exists(self, path: str) -> bool:
        """A file or folder stands there."""
        path = self.normal(path)
        if path not in self._exists:
            self._exists[path] = (
                path == "."
                or path in self._overrides
                or path in self._override_dirs
                or os.path.lexists(self._absolute(path))
            )
        return self._exists[path]

    def is_file(self, path: str) -> bool:
        """A regular file stands there."""
        path = self.normal(path)
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = path in self._overrides or _is_regular(self._absolute(path))
        return found

    def resolve(self, path: str, base_dirs: Iterable[str]) -> str | None:
        """The first ``base/path`` that is a file, as a user-facing path."""
        return next((self.at(base, path) for base in base_dirs if self.has(base, path)), None)

    def has(self, folder: str, path: str) -> bool:
        """A regular file stands where the path leads from a folder."""
        found = self._has.get((folder, path))
        if found is None:
            found = self._has[folder, path] = self.is_file(self.at(folder, path))
        return found

    def bases(self, path: str) -> tuple[str, ...]:
        """Folders from which people run a command of this file: its own, then each parent up to the root.

        For a file outside the root the walk ends at the top of its repository.
        """
        folder = posixpath.dirname(self.normal(path))
        if folder not in self._bases:
            found: list[str] = []
            for parent in _parents(folder):
                found.append(parent)
                outside = parent.startswith(("/", ".."))
                if len(found) > _MAX_PARENTS or (outside and os.path.exists(self._absolute(parent) + "/.git")):
                    break
            self._bases[folder] = tuple(found)
        return self._bases[folder]

    def starts(self, path: str) -> tuple[str, ...]:
        """The folders from which the commands of a file may be started."""
        return ("",) if self.is_start else self.bases(path)

    def files_below(self, folder: str, skipped: Set[str], most: int) -> list[str]:
        """The files in a folder and below, in the order of their paths; none where there are more than ``most``."""
        found = {path for path in self._overrides if not folder or path.startswith(f"{folder}/")}
        for path in self._walk(folder, skipped):
            found.add(path)
            if len(found) > most:
                return []
        return sorted(found)

    def _walk(self, folder: str, skipped: Set[str]) -> Iterator[str]:
        for root, folders, names in os.walk(self._absolute(folder)):
            folders[:] = [name for name in folders if name not in skipped]
            inner = os.path.relpath(root, self._top or ".") if not folder.startswith("/") else root
            for name in names:
                yield self.normal(os.path.join(inner, name))

    def json(self, path: str) -> DataDoc | None:
        """A JSON file as data with positions; ``None`` when it cannot be read."""
        from dslint.parse.jsondoc import parse_json

        return self._document(path, "json", parse_json)

    def yaml(self, path: str) -> DataDoc | None:
        """A YAML file as data with positions; ``None`` when it cannot be read."""
        from dslint.parse.yamldoc import parse_yaml

        return self._document(path, "yaml", parse_yaml)

    def memo(self, kind: str, path: str, make: Callable[[SourceFile], T]) -> T | None:
        """``make`` applied to the file, once per file and kind; ``None`` when it cannot be read."""
        key = (kind, self.normal(path))
        if key not in self._memo:
            source = self.read(path)
            self._memo[key] = None if source is None else make(source)
        return cast("T | None", self._memo[key])

    def kept(self, kind: str, make: Callable[[], T]) -> T:
        """``make`` called once for this workspace."""
        key = (kind, "")
        if key not in self._memo:
            self._memo[key] = make()
        return cast("T", self._memo[key])

    def remembered(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """``make`` called, or its last result where the objects of the key are the same and no file of it has changed.

        This workspace, which sees one state of the files, always calls.
        """
        del key
        return make()

    def rests_on(self, script: str) -> None:
        """Note that what is being made rests on a script and all that it imports."""

    def _document(self, path: str, kind: str, parse: Callable[[SourceFile], DataDoc]) -> DataDoc | None:
        return self.memo(kind, path, parse)

    def _absolute(self, path: str) -> str:
        return os.path.join(self._top, path)


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _parents(folder: str) -> list[str]:
    """``a/b`` -> ``a/b``, ``a``, ``""``; ends at ``/`` for absolute folders and at ``..`` parts for outside ones."""
    out = [folder]
    while folder and folder != "/" and posixpath.basename(folder) != "..":
        folder = posixpath.dirname(folder)
        out.append(folder)
    return out
