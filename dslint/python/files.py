"""The way to the files of a project: nothing in the interpreter opens one by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dslint.python.search import ModuleSearch


class Files(Protocol):
    """The way to the files of a project, by absolute path with `/`; are its answers remembered for a later run?"""

    is_remembered: bool

    def absolute(self, path: str) -> str:
        """Return the absolute path of a path that the user sees."""

    def shown(self, path: str) -> str:
        """Return the path as the user sees it."""

    def root(self, path: str) -> str:
        """Return the root folder of the project around a file."""

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file; `None` when it is missing."""

    def answer(self, question: tuple[str, ...]) -> str:
        """Return the path of a module, the digest of a file, or what stands in or around a folder, one a line."""


class Texts:
    """Files that exist in memory only, by path: for examples and tests."""

    is_remembered = False

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = {f"/project/{path}": text for path, text in texts.items()}
        folders = {path[:at] for path in self.texts for at, letter in enumerate(path) if letter == "/"}
        self._search = ModuleSearch(lambda p: "file" if p in self.texts else "folder" if p in folders else "")

    def absolute(self, path: str) -> str:
        """Return the absolute path of a path that the user sees."""
        return path if path.startswith("/") else f"/project/{path}"

    def shown(self, path: str) -> str:
        """Return the path as the user sees it."""
        return path.removeprefix("/project/")

    def root(self, path: str) -> str:
        """Return the root folder of the project around a file."""
        return "/project"

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file; `None` when it is missing."""
        found = self.texts.get(path)
        return found.encode("utf-8", "surrogatepass") if found is not None else None

    def answer(self, question: tuple[str, ...]) -> str:
        """Return the path of a module, or a text that changes with the bytes of a file."""
        if question[0] == "module":
            return self._search.find(question[1], question[2], question[3])
        if question[0] == "scripts":
            return "\n".join(path for path in sorted(self.texts) if path.endswith(".py"))
        if question[0] == "entries":
            inside = f"{question[1]}/"
            return "\n".join(
                sorted({p.removeprefix(inside).partition("/")[0] for p in self.texts if p.startswith(inside)})
            )
        if question[0] == "ignored":
            return ""
        return self.texts.get(question[1], "")
