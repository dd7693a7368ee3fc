"""What the interpretations of several scripts share: trees, objects by place, and what the bodies of modules do."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from dslint.core.source import SourceFile
from dslint.parse.python import ScriptProblem
from dslint.parse.reading import Unreadable, decode
from dslint.python.source import Module, read
from dslint.python.values import ClassAtom, Function, Instance

if TYPE_CHECKING:
    from dslint.python.files import Files
    from dslint.python.lanes import Worlds
    from dslint.python.moduleruns import ModuleRun


@dataclass(slots=True)
class Interned:
    """Things that exist once for each place and the calls that lead to it."""

    contexts: dict[object, int] = field(default_factory=dict)
    instances: dict[object, Instance] = field(default_factory=dict)
    definitions: dict[object, Function | ClassAtom] = field(default_factory=dict)
    loops: dict[object, int] = field(default_factory=dict)


class Shared:
    """One object for the scripts that a process interprets in the same worlds, until it holds too much.

    Trees stay alive as long as it does: objects are known by the identity of their nodes.
    """

    def __init__(self) -> None:
        self.parsed: dict[str, Module | None] = {}
        self.trees: list[ast.Module] = []
        self.interned = Interned()
        self.numbers: Iterator[int] = count(1)
        # What the bodies of modules did, by path: in different surroundings they may do different things.
        self.runs: dict[str, list[ModuleRun]] = {}
        # Imports that were put off, by the frame of the module and the name (`focus.py`).
        self.waiting: dict[tuple[int, str], list[tuple[Module, ast.Import | ast.ImportFrom, ast.alias]]] = {}
        self._started: dict[object, Shared] = {}

    def started(self, worlds: Worlds | str | None) -> Shared:
        """Return what the interpretations of scripts share that launch commands start in these worlds.

        The same but for runs of modules: those that ask for something that a command may say are not kept. A text in
        place of the worlds names a question for which modules are not read in their order.
        """
        if worlds not in self._started:
            made = self._started[worlds] = Shared()
            made.parsed, made.trees, made.interned, made.numbers = self.parsed, self.trees, self.interned, self.numbers
        return self._started[worlds]

    def without(self, paths: Iterable[str]) -> Shared:
        """Return another one with the trees of this one but for those of some files, and nothing that rests on them."""
        gone = set(paths)
        made = Shared()
        made.parsed = {path: module for path, module in self.parsed.items() if path not in gone}
        return made

    def forget(self, paths: Iterable[str]) -> None:
        """Forget the trees of some files, and what the bodies of modules did that rest on one of them."""
        gone = set(paths)
        for one in (self, *self._started.values()):
            for path in _resting_on(gone, one.runs):
                one.runs.pop(path, None)
        for path in gone:
            self.parsed.pop(path, None)

    def module_in(self, files: Files, path: str) -> Module | None:
        """Return the module in a file; `None` when Python cannot read it."""
        if path not in self.parsed:
            raw = files.read(path)
            text = decode(raw) if raw is not None else None
            module: Module | None = None
            if text is not None and not isinstance(text, Unreadable):
                found = read(SourceFile(files.shown(path), text), absolute=path)
                module = None if isinstance(found, ScriptProblem) else found
            self.parsed[path] = module
        return self.parsed[path]

    def module_of(self, source: SourceFile, tree: ast.Module, path: str) -> Module:
        """Return the module of a script, whose tree is there, for it and for modules that import it.

        What the body of another text under this path did is forgotten.
        """
        known = self.parsed.get(path)
        if known is None or known.source.text != source.text:
            known = self.parsed[path] = Module(source, tree, absolute=path)
            for one in (self, *self._started.values()):
                one.runs.pop(path, None)
        return known


def _resting_on(paths: set[str], runs: Mapping[str, Sequence[ModuleRun]]) -> set[str]:
    """Return the files with all modules that import one of them, or a module that does."""
    found = set(paths)
    fresh = True
    while fresh:
        more = {path for path in runs.keys() - found if any(run.rests_on(found) for run in runs[path])}
        found |= more
        fresh = bool(more)
    return found
