"""The files of a project as scripts ask for them: nothing here opens one, and every question is written down.

The engine hands in what reads the files. A result can be used again as long as all answers are the same.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from dslint.python.files import Files
from dslint.python.search import Question, is_library
from dslint.python.shared import Shared

# A larger module is generated, or no code that people train with.
MAX_MODULE = 300_000
# Who asks: ("script", path) is the one that is judged, ("module", path) the analysis of one that others import,
# ("names", ...) a first look at its names.
Asker = tuple[object, ...]


class Project:
    """What the scripts of a process ask of other files, and what their interpretations share."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._asked: dict[Asker, dict[Question, str]] = {}
        self._used: dict[Asker, set[Asker]] = {}
        # What interpretations of scripts share.
        self.interpreted = Shared()

    def renew(self, paths: Iterable[str]) -> None:
        """Forget all but the trees of files; of these files, which have other texts now, the trees, too."""
        self._asked.clear()
        self._used.clear()
        self.interpreted = self.interpreted.without(paths)

    def forget(self, paths: Iterable[str]) -> None:
        """Forget these files, which have other texts now, and what rests on them."""
        self._asked.clear()
        self._used.clear()
        self.interpreted.forget(paths)

    # -- what was asked -----------------------------------------------------------------------------------------

    def asked_by(self, asker: Asker) -> tuple[tuple[Question, str], ...]:
        """All questions about other files behind what an asker found out, and behind what it used, for a later run."""
        found: dict[Question, str] = {}
        pending, seen = [asker] if self.files.is_remembered else [], {asker}
        while pending:
            current = pending.pop()
            found.update(self._asked.get(current, {}))
            fresh = self._used.get(current, set()) - seen
            seen |= fresh
            pending += fresh
        return tuple(sorted(found.items()))

    def uses(self, asker: Asker, other: Asker) -> None:
        """What ``asker`` finds out rests on what ``other`` has found out, now or before."""
        self._used.setdefault(asker, set()).add(other)

    # -- modules ------------------------------------------------------------------------------------------------

    def module(self, asker: Asker, importer: str, name: str) -> str:
        """The file of a module as a file names it (both absolute paths), empty when it is not of this project."""
        if is_library(importer, name):
            return ""
        return self._ask(asker, ("module", posixpath.dirname(importer), self.files.root(importer), name))

    def holds(self, asker: Asker, importer: str, package: str) -> bool:
        """Whether the project has a package or module of that name near a file, also one that is named as a library."""
        root = self.files.root(importer)
        folder = posixpath.dirname(importer)
        if not (folder + "/").startswith(root.rstrip("/") + "/"):
            return False

        def asked(base: str, name: str) -> str:
            return self._ask(asker, ("module", base, root, name))

        if asked(posixpath.join(root, "src"), f".{package}"):
            return True
        # Folders inside of a package are no places where Python looks.
        levels = ("." * level for level in range(1, folder[len(root) :].count("/") + 2))
        return any(asked(folder, up + package) and not asked(folder, up) for up in levels)

    def text(self, asker: Asker, path: str) -> bytes | None:
        """The bytes of a module; ``None`` when it is too large or cannot be read."""
        if not self._ask(asker, ("file", path)):
            return None
        raw = self.files.read(path)
        return raw if raw is not None and len(raw) <= MAX_MODULE else None

    def _ask(self, asker: Asker, question: Question) -> str:
        answer = self._asked.setdefault(asker, {})[question] = self.files.answer(question)
        return answer

    def note(self, asker: Asker, questions: Iterable[Question]) -> None:
        """Write down questions that an interpretation has asked the files by itself."""
        for question in questions:
            self._ask(asker, question)
