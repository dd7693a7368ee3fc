"""Files of the project that a script imports: read on demand, never from outside of the project."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from dslint.engine.gitignore import ignores_above, is_ignored
from dslint.engine.gitindex import repository
from dslint.engine.neighbours import project_root
from dslint.parse.reading import read_bytes
from dslint.python.search import ModuleSearch, Question

# More scripts around one are not looked through.
_MOST_SCRIPTS = 400


class ProjectFiles:
    """Access by absolute path, with everything remembered: one object sees one state of the files.

    ``overrides`` are texts by the path that the user sees; they replace what stands on disk. ``is_remembered``: a later
    run will ask whether the answers are still the same.
    """

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        self.is_remembered = True
        given = (overrides or {}).items()
        self._texts = {self.absolute(path): text.encode("utf-8", "surrogatepass") for path, text in given}
        self._roots: dict[str, str] = {}
        self._inside: dict[str, bool] = {}
        self._kinds: dict[str, str] = {}
        self._bytes: dict[str, bytes | None] = {}
        self._answers: dict[Question, str] = {}
        self._search = ModuleSearch(self.kind)

    def renew(self, overrides: Mapping[str, str], changed: Iterable[str]) -> list[str]:
        """Take other texts of some files, which exist before and after; returns their absolute paths."""
        given = overrides.items()
        self._texts = {self.absolute(path): text.encode("utf-8", "surrogatepass") for path, text in given}
        gone = [self.absolute(path) for path in changed]
        for path in gone:
            self._bytes.pop(path, None)
            self._answers.pop(("file", path), None)
        return gone

    def absolute(self, path: str) -> str:
        """The absolute path of a path that the user sees."""
        return os.path.abspath(path).replace(os.sep, "/")

    def shown(self, path: str) -> str:
        """The path as the user sees it: relative below the working directory."""
        here = self.absolute(".")
        return path[len(here) + 1 :] if path.startswith(here.rstrip("/") + "/") else path

    def root(self, path: str) -> str:
        """The root folder of the project around a file."""
        folder = os.path.dirname(path)
        if folder not in self._roots:
            self._roots[folder] = (repository(folder) or project_root(folder)).replace(os.sep, "/")
        return self._roots[folder]

    def kind(self, path: str) -> str:
        """``file``, ``folder``, or empty when nothing stands there or a link leads out of its project."""
        if path not in self._kinds:
            self._kinds[path] = self._kind(path)
        return self._kinds[path]

    def _kind(self, path: str) -> str:
        if path in self._texts:
            return "file"
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                mode = os.stat(path).st_mode if self._is_inside(path) else 0
        except (OSError, ValueError):
            return "folder" if any(text.startswith(path + "/") for text in self._texts) else ""
        found = "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else ""
        return found if found and self._is_inside(path if found == "folder" else os.path.dirname(path)) else ""

    def _is_inside(self, path: str) -> bool:
        """The path, with all links followed, lies in the project around it."""
        if path not in self._inside:
            top = os.path.realpath(self.root(os.path.join(path, "x")))
            self._inside[path] = os.path.join(os.path.realpath(path), "").startswith(os.path.join(top, ""))
        return self._inside[path]

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; ``None`` when it is missing, no regular file, or too large for any script."""
        if path not in self._bytes:
            found = self._texts.get(path)
            if found is None and self.kind(path) == "file":
                raw = read_bytes(path)
                found = raw if isinstance(raw, bytes) else None
            self._bytes[path] = found
        return self._bytes[path]

    def answer(self, question: Question) -> str:
        """The answer to a question (see :mod:`dslint.python.search`), from the files as they are."""
        if question not in self._answers:
            self._answers[question] = self._answer(question)
        return self._answers[question]

    def _answer(self, question: Question) -> str:
        if question[0] == "module":
            _, folder, root, name = question
            return self._search.find(folder, root, name)
        if question[0] == "scripts":
            return "\n".join(self._scripts(question[1], question[2]))
        if question[0] == "entries":
            return "\n".join(self._entries(question[1]))
        if question[0] == "ignored":
            return "yes" if is_ignored(question[1], ignores_above(question[1].rpartition("/")[0])) else ""
        from dslint.engine.cache import digest

        raw = self.read(question[1])
        return "" if raw is None else digest(raw)

    def _scripts(self, folder: str, root: str) -> list[str]:
        """The scripts beside a file: in its folder, in those above it up to the root, and in the folders in these."""
        found: set[str] = set()
        top = root.rstrip("/") + "/"
        while (folder + "/").startswith(top):
            for name in self._entries(folder):
                path = f"{folder}/{name}"
                if name.endswith(".py"):
                    found.add(path)
                elif not name.startswith(".") and self.kind(path) == "folder":
                    found |= {f"{path}/{inner}" for inner in self._entries(path) if inner.endswith(".py")}
            folder = os.path.dirname(folder)
        found |= {text for text in self._texts if text.endswith(".py") and text.startswith(top)}
        return sorted(found)[:_MOST_SCRIPTS]

    @staticmethod
    def _entries(folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError:
            return []
