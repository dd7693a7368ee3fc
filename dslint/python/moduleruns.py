"""Runs of the bodies of modules, kept for the next script that imports them.

The body of a module does what it did before where every cell that it reads from elsewhere holds the same value. Other
modules that it imports run in between, as they did: a run is kept in the parts between its imports.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.python.events import Call, Node, Seq, walk
from dslint.python.generators import Waiting
from dslint.python.machine import Machine
from dslint.python.source import Module
from dslint.python.store import Key
from dslint.python.values import ClassAtom, Function, Instance, Value

if TYPE_CHECKING:
    from dslint.python.program import Program

# A module may run in that many different surroundings before runs are no longer kept.
_VARIANTS = 6


@dataclass(slots=True)
class Noted:
    """What the definitions of a run have told the program and the machine."""

    functions: list[Function] = field(default_factory=list)
    classes: list[ClassAtom] = field(default_factory=list)
    callbacks: list[tuple[Function, Module]] = field(default_factory=list)
    decorators: dict[Function, list[tuple[str, ast.AST]]] = field(default_factory=dict)
    runs_on: dict[Function, int] = field(default_factory=dict)
    asked: set[tuple[str, ...]] = field(default_factory=set)
    reached: set[int] = field(default_factory=set)
    lost: dict[str, int] = field(default_factory=dict)
    generators: dict[Instance, Waiting] = field(default_factory=dict)

    def add(self, other: Noted) -> None:
        """Take over what another run has told."""
        self.functions += other.functions
        self.classes += other.classes
        self.callbacks += other.callbacks
        for function, found in other.decorators.items():
            self.decorators.setdefault(function, []).extend(found)
        self.runs_on.update(other.runs_on)
        self.asked |= other.asked
        self.reached |= other.reached
        self.generators.update(other.generators)
        for reason, number in other.lost.items():
            self.lost[reason] = self.lost.get(reason, 0) + number


@dataclass(slots=True)
class Part:
    """What a run reads, writes and does before the import of a module; the last part ends with the body."""

    reads: dict[Key, Value | None]
    writes: dict[Key, Value]
    body: list[Node]
    imported: Module | None
    node: ast.AST | None


@dataclass(slots=True)
class ModuleRun:
    """What the body of one module did."""

    parts: list[Part]
    undone: list[Key]  # written in between and not there at the end
    names: dict[object, dict[object, None]]
    noted: Noted


class Recording:
    """A run that is taking place; `end` makes a record of it where that is possible."""

    def __init__(self, m: Machine, mark: int, body: list[Node]) -> None:
        self._m = m
        self._mark = mark
        self._body = body
        self._parts: list[Part] = []
        self._reads = 0
        self._done = 0
        self._written: dict[Key, Value] = {}
        self.is_complete = True
        store = m.store
        self._outer = (store.reads, store.written)
        self._own: dict[Key, Value | None] = {}
        store.reads, store.written = self._own, set()

    def imports(self, module: Module, node: ast.AST | None) -> None:
        """End a part: another module is imported."""
        self._end_part(module, node)

    def _end_part(self, module: Module | None, node: ast.AST | None) -> None:
        changes = self._m.store.changes(self._mark)
        old = self._written
        writes = {key: value for key, value in changes.items() if old.get(key) is not value}
        reads = dict(list(self._own.items())[self._reads :])
        self._reads = len(self._own)
        # What the imported module does is its own.
        body = [n for n in self._body[self._done :] if not (isinstance(n, Call) and isinstance(n.function, Module))]
        self._done = len(self._body)
        self._parts.append(Part(reads, writes, body, module, node))
        self._written = {**old, **changes}

    def end(self, noted: Noted) -> ModuleRun | None:
        """Return the record; `None` where the run depends on more than its surroundings. Before the run is settled."""
        store = self._m.store
        self._end_part(None, None)
        store.reads, store.written = self._outer
        for part in self._parts:
            if any(isinstance(n, Call) and isinstance(n.function, Module) for n in walk(Seq(part.body))):
                return None  # an import in a block that may not run
        if not self.is_complete:
            return None
        final = store.changes(self._mark)
        names = {owner: store.names[owner] for owner in {key[0] for key in final}}
        return ModuleRun(self._parts, [key for key in self._written if key not in final], names, noted)


def replay(program: Program, m: Machine, module: Module, run: ModuleRun) -> list[Node] | None:
    """Do what a run did, and return its events; `None`, with nothing done but imports, in other surroundings."""
    store = m.store
    body: list[Node] = []
    before: dict[Key, Value | None] = {}
    for part in run.parts:
        if not _holds(m, part.reads):
            for key, value in before.items():
                if value is None:
                    store.base.pop(key, None)
                else:
                    store.base[key] = value
            return None
        if len(run.parts) > 1:
            for key in part.writes:
                before.setdefault(key, store.base.get(key))
        store.base.update(part.writes)
        for key in part.writes.keys() & store.cells.keys():
            del store.cells[key]
        body += part.body
        if part.imported is not None:
            events = program.run_again(m, part.imported)
            if events is not None and events.items and part.node is not None:
                body.append(Call(part.node, module, part.imported, events))
    for key in run.undone:
        store.base.pop(key, None)
    for owner in run.names.keys() & store.names.keys():
        if store.names[owner] is not run.names[owner]:
            run.names[owner].update(store.names[owner])
    store.names.update(run.names)
    return body


def _holds(m: Machine, reads: dict[Key, Value | None]) -> bool:
    peek = m.store.peek
    for key, value in reads.items():
        found = peek(key)
        if found is not value and found != value:
            return False
    return True


def is_kept(known: list[ModuleRun]) -> bool:
    """Return whether one more run of a module may be kept."""
    return len(known) < _VARIANTS
