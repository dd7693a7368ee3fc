"""Functions of other files of the project, by import, each in the analysis of its own file.

Nothing here opens a file: the engine hands in what reads them. Every question is written down with its answer, so that
a result can be used again as long as all answers are the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import libcst as cst

from dslint.core.source import Location, SourceFile
from dslint.model.context import Context
from dslint.model.script.across.waiting import Exports, WaitingNames
from dslint.parse.python import ScriptDoc, parse_script
from dslint.parse.reading import decode
from dslint.python.program import Files
from dslint.python.project import Asker
from dslint.python.project import Project as Asked

if TYPE_CHECKING:
    from dslint.model.script.across.imported import Imported
    from dslint.model.script.collective.summaries import Summaries
    from dslint.model.script.names import Names
    from dslint.model.script.objects.objects import Objects
    from dslint.model.script.ranks.guards import Guards
    from dslint.model.script.traces.divergence import Divergences
    from dslint.model.script.tree import Tree

# How much source of other files is kept parsed at once, in bytes, and how many of them one file may ask for itself.
_KEPT = 500_000
_PER_FILE = 40


class Analysis(Protocol):
    """What is known about one script: what a rule may ask, as far as questions across files need it."""

    doc: ScriptDoc
    tree: Tree

    @property
    def names(self) -> Names:
        """Scopes and bindings."""

    @property
    def guards(self) -> Guards:
        """Rank guards."""

    @property
    def objects(self) -> Objects:
        """Kinds of objects."""

    @property
    def summaries(self) -> Summaries:
        """Collectives by function."""

    @property
    def divergences(self) -> Divergences:
        """The traces of the ranks."""

    @property
    def project(self) -> Imported:
        """Functions of other files."""

    def location(self, node: cst.CSTNode, label: str = "") -> Location:
        """The place of a node."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A function of another file, in the analysis of that file."""

    context: Analysis
    function: cst.FunctionDef


class Project(Asked):
    """The modules of a project that scripts have asked for, each parsed once; one object a process."""

    def __init__(self, files: Files, make: Callable[[ScriptDoc, Context, Project], Analysis] | None = None) -> None:
        super().__init__(files)
        # A profile has a clock at these three.
        self.make = make
        self.parse = parse_script
        self.exported = self.first_look
        self._docs: OrderedDict[str, ScriptDoc | None] = OrderedDict()
        self._contexts: dict[tuple[str, Any], Analysis] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0
        self._parsed_for: dict[Asker, set[str]] = {}
        self._waiting: dict[tuple[str, ...], WaitingNames] = {}

    def first_look(self, asker: Asker, path: str, raw: bytes, run: Context) -> Exports:
        """What of a module may wait, by the names that others import."""
        return self.waiting(run).exported(asker, path, raw)

    def waiting(self, run: Context) -> WaitingNames:
        """The cheap first look at what imports may wait."""
        own = run.vocabulary.collectives
        if own not in self._waiting:
            self._waiting[own] = WaitingNames(self, own)
        return self._waiting[own]

    def analysis(self, asker: Asker, path: str, run: Context) -> Analysis | None:
        """The analysis of a module; ``None`` when it cannot be read, or when the asker has asked for enough."""
        raw = self.text(asker, path)
        parsed = self._parsed_for.setdefault(asker, set())
        self.uses(asker, ("module", path))
        if raw is None or self.make is None or (path not in parsed and len(parsed) >= _PER_FILE):
            return None
        parsed.add(path)
        doc = self._doc(path, raw)
        if doc is None:
            return None
        # Arguments are those of the script that the command starts.
        context = replace(run, arguments={}, config=None, locked=None)
        key = (path, (run.world_size.get_or(None), run.zero_stage.get_or(None)))
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = self.make(doc, context, self)
        return found

    def _doc(self, path: str, raw: bytes) -> ScriptDoc | None:
        if path in self._docs:
            self._docs.move_to_end(path)
            return self._docs[path]
        text = decode(raw)
        doc = self.parse(SourceFile(self.files.shown(path), text)) if isinstance(text, str) else None
        self._docs[path] = doc if isinstance(doc, ScriptDoc) else None
        self._sizes[path] = len(raw)
        self._size += len(raw)
        while self._size > _KEPT and len(self._docs) > 1:
            oldest, _ = self._docs.popitem(last=False)
            self._size -= self._sizes.pop(oldest)
            self._contexts = {key: context for key, context in self._contexts.items() if key[0] != oldest}
        return self._docs[path]
