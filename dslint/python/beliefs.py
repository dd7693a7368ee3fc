"""What the interpreter believes at the expressions of one script: for visitors, who ask by the node."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dslint.core.source import SourceFile
from dslint.python import attributes
from dslint.python.entries import Analysis
from dslint.python.events import Event, walk
from dslint.python.facts import lanes_text
from dslint.python.files import Texts
from dslint.python.joins import join
from dslint.python.launches import Launch, common
from dslint.python.libraries import libraries
from dslint.python.project import Project
from dslint.python.shared import Shared
from dslint.python.source import Module
from dslint.python.stack import deep_calls
from dslint.python.values import NOTHING, ClassAtom, Const, Instance, Value
from dslint.python.vocabulary import Vocabulary


class Beliefs:
    """One interpretation of a script, with all that it defines, and the values of its expressions."""

    def __init__(
        self,
        source: SourceFile,
        tree: ast.Module,
        project: Project | None = None,
        launches: Sequence[Launch] = (),
        own: Vocabulary | None = None,
    ) -> None:
        launch = common(launches) if launches else None
        files = project.files if project is not None else Texts({})
        worlds = launch.worlds if launch is not None else None
        path = files.absolute(source.path)
        known = project.interpreted if project is not None else Shared()
        self._module = known.module_of(source, tree, path)
        if self._module.tree is not tree:
            # Who asks has other nodes than the scripts before have left behind.
            known = Shared()
            self._module = known.module_of(source, tree, path)
        self._analysis = Analysis(files, worlds, libraries(own), known if launch is None else known.started(worlds))
        machine = self._analysis.machine
        machine.launch = launch
        machine.program.records_imports = False
        self._values: dict[int, Value] = {}
        self._classes: dict[int, set[str]] = {}
        self._lanes: dict[int, int] = {}
        self._tags: dict[int, frozenset[str]] = {}
        machine.recorder = self._record
        with deep_calls():
            self._analysis.script(source.path, everything=True)
        if project is not None:
            project.note(("script", path), self._analysis.program.noted.asked)
        for _, events in self._analysis.events():
            for node in walk(events):
                if isinstance(node, Event):
                    self._tags[id(node.node)] = self._tags.get(id(node.node), frozenset()) | node.tags

    def _record(self, module: Module, node: ast.AST, value: Value) -> None:
        if module is not self._module:
            return
        known = self._values.get(id(node))
        self._values[id(node)] = value if known is None else join(known, value)
        classes = self._classes.setdefault(id(node), set())
        classes |= {self._class(atom) for atom in value.atoms} or {""}
        self._lanes[id(node)] = self._lanes.get(id(node), 0) | self._analysis.machine.lanes

    def _class(self, atom: object) -> str:
        """The class of a library that an object is of, or the nearest one among its bases."""
        if not isinstance(atom, Instance):
            return ""
        if isinstance(atom.cls, ClassAtom):
            bases = attributes.lineage(self._analysis.machine, atom.cls)
            return next((base for base in bases if isinstance(base, str)), "")
        return str(atom.cls)

    def constants(self, node: ast.expr) -> tuple[object, ...] | None:
        """Return the constants that an expression may hold; `None` when it may hold anything else."""
        found = self._values.get(id(node))
        return found.constants if found is not None and found.atoms else None

    def class_of(self, node: ast.expr) -> str:
        """Return the one class of which an expression certainly holds an object."""
        found = self._classes.get(id(node), set())
        return next(iter(found)) if len(found) == 1 else ""

    def is_own(self, node: ast.expr) -> bool:
        """Return whether an expression certainly holds an object of a class of the project without a library base."""
        atoms = self._values.get(id(node), NOTHING).atoms
        return bool(atoms) and all(
            isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom) and not self._class(atom) for atom in atoms
        )

    def is_text(self, node: ast.expr) -> bool:
        """Return whether an expression certainly holds a text."""
        atoms = self._values.get(id(node), NOTHING).atoms
        return bool(atoms) and all(
            isinstance(atom.value, str) if isinstance(atom, Const) else getattr(atom, "type", "") == "builtins.str"
            for atom in atoms
        )

    def tags(self, node: ast.AST) -> frozenset[str]:
        """Return the tags of what a call does."""
        return self._tags.get(id(node), frozenset())

    def ranks(self, node: ast.expr) -> frozenset[int]:
        """Return which ranks of one machine with four processes come to an expression."""
        machine = self._analysis.machine
        group = next(g for w, g in zip(machine.worlds.shapes, machine.worlds.groups, strict=True) if w == (1, 4))
        return frozenset(at for at, lane in enumerate(group) if self._lanes.get(id(node), 0) >> lane & 1)

    def only_on(self, node: ast.expr) -> str:
        """Return which ranks come to an expression, in words; empty when all do, and when nothing is known."""
        machine = self._analysis.machine
        lanes = self._lanes.get(id(node), 0)
        return lanes_text(machine, lanes) if lanes and lanes != machine.worlds.full else ""
