"""A workspace that outlives changes of texts: what was made of files that are as they were stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

from dslint.core.source import SourceFile
from dslint.model.plan.scriptrun import RUNS, forget, imported_by
from dslint.model.workspace import Workspace

T = TypeVar("T")
# Marks, among the paths that something rests on, a script with all that it imports.
_SCRIPT = "script "


class KeptWorkspace(Workspace):
    """Knows for each thing that it keeps which texts it rests on; which files exist must stay the same."""

    def __init__(self, overrides: Mapping[str, str]) -> None:
        super().__init__(Path(), overrides)
        # What is being made now rests on these, innermost last.
        self._frames: list[set[str]] = []
        self._needs: dict[tuple[str, str], frozenset[str]] = {}
        self._made: dict[tuple[object, ...], tuple[tuple[object, ...], object, frozenset[str]]] = {}

    def read(self, path: str) -> SourceFile | None:
        """The text of a file, which what is being made rests on."""
        if self._frames:
            self._frames[-1].add(self.normal(path))
        return super().read(path)

    def rests_on(self, script: str) -> None:
        """Note that what is being made rests on a script and all that it imports."""
        if self._frames:
            self._frames[-1].add(_SCRIPT + script)

    @contextmanager
    def noted(self) -> Iterator[set[str]]:
        """Write down what is read inside."""
        frame: set[str] = set()
        self._frames.append(frame)
        try:
            yield frame
        finally:
            self._frames.pop()
            self._note(frame)

    def _note(self, needs: Iterable[str]) -> None:
        if self._frames:
            self._frames[-1].update(needs)

    def memo(self, kind: str, path: str, make: Callable[[SourceFile], T]) -> T | None:
        """``make`` applied to the file, once as long as nothing that it has read changes."""
        return self._kept((kind, self.normal(path)), lambda: super(KeptWorkspace, self).memo(kind, path, make))

    def kept(self, kind: str, make: Callable[[], T]) -> T:
        """``make`` called once as long as nothing that it has read changes."""
        return self._kept((kind, ""), lambda: super(KeptWorkspace, self).kept(kind, make))

    def _kept(self, key: tuple[str, str], make: Callable[[], T]) -> T:
        if key in self._needs and key in self._memo:
            self._note(self._needs[key])
            return cast("T", self._memo[key])
        with self.noted() as needs:
            found = make()
        self._needs[key] = frozenset() if key[0] == RUNS else frozenset(needs)
        return found

    def remembered(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """The last result of ``make`` for the same objects where nothing that it has read has changed."""
        number = tuple(part if isinstance(part, str) else id(part) for part in key)
        known = self._made.get(number)
        if known is not None:
            self._note(known[2])
            return cast("T", known[1])
        with self.noted() as needs:
            found = make()
        # With the objects: another one must not get the number of one that is gone.
        self._made[number] = (key, found, frozenset(needs))
        return found

    def renew(self, overrides: Mapping[str, str], changed: Iterable[str]) -> frozenset[str]:
        """Take other texts of some files, and forget what rests on them; returns what names that, for others."""
        gone = {self.normal(path) for path in changed}
        scripts = {need for needs in self._all_needs() for need in needs if need.startswith(_SCRIPT)}
        touched = {need for need in scripts if not gone.isdisjoint(imported_by(need.removeprefix(_SCRIPT), self))}
        self._overrides = {self.normal(path): text for path, text in overrides.items()}
        for path in gone:
            self._sources.pop(path, None)
        touched |= gone
        for key in [key for key, needs in self._needs.items() if not touched.isdisjoint(needs)]:
            del self._needs[key]
            self._memo.pop(key, None)
        for number in [number for number, made in self._made.items() if not touched.isdisjoint(made[2])]:
            del self._made[number]
        if any(path.endswith((".py", ".pyw", ".ipynb")) for path in gone):
            forget(gone, self)
        return frozenset(touched)

    def _all_needs(self) -> Iterator[frozenset[str]]:
        yield from self._needs.values()
        yield from (made[2] for made in self._made.values())

    def keep_only(self, objects: Iterable[object]) -> None:
        """Forget what was remembered for others than these."""
        wanted = {id(one) for one in objects}
        self._made = {number: made for number, made in self._made.items() if id(made[0][1]) in wanted}
