"""Runs of the bodies of modules, kept for the next script that imports them.

The body of a module does what it did before where every cell that it reads from elsewhere holds the same value. Other
modules that it imports run in between, as they did: a run is kept in the parts between its imports. What a module does
that is imported in a block stands in that block again, if it does it this time.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dslint.python.events import Alt, Call, Context, Loop, Node, Seq, Try, walk
from dslint.python.generators import Waiting
from dslint.python.machine import Machine
from dslint.python.source import Module
from dslint.python.store import Key
from dslint.python.values import ClassAtom, Function, Instance, Value

if TYPE_CHECKING:
    from dslint.python.program import Program

# A module may run in that many different surroundings before runs are no longer kept.
_VARIANTS = 24


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
    """What a run reads, writes and does before the import of a module; the last part ends with the body.

    `is_inner`: that import is in a block. `has_inner`: what is done holds blocks with imports.
    """

    reads: dict[Key, Value | None]
    writes: dict[Key, Value]
    body: list[Node]
    imported: Module | None
    node: ast.AST | None
    is_inner: bool = False
    has_inner: bool = False


@dataclass(slots=True)
class ModuleRun:
    """What the body of one module did."""

    parts: list[Part]
    undone: list[Key]  # written in between and not there at the end
    names: dict[object, dict[object, None]]
    noted: Noted

    def rests_on(self, paths: set[str]) -> bool:
        """Return whether one of these files was read for it, or is imported in it."""
        if any(part.imported is not None and part.imported.absolute in paths for part in self.parts):
            return True
        return any(question[0] == "file" and question[1] in paths for question in self.noted.asked)


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
        body = [node for node in self._body[self._done :] if not _is_import(node)]
        self._done = len(self._body)
        self._parts.append(Part(reads, writes, body, module, node, self._m.events is not self._body))
        self._written = {**old, **changes}

    def end(self, noted: Noted) -> ModuleRun | None:
        """Return the record; `None` where the run depends on more than its surroundings. Before the run is settled."""
        store = self._m.store
        self._end_part(None, None)
        store.reads, store.written = self._outer
        if not self.is_complete:
            return None
        for part in self._parts:
            part.has_inner = any(_is_import(node) for node in walk(Seq(part.body)))
        final = store.changes(self._mark)
        names = {owner: store.names[owner] for owner in {key[0] for key in final}}
        return ModuleRun(self._parts, [key for key in self._written if key not in final], names, noted)


def replay(program: Program, m: Machine, module: Module, run: ModuleRun) -> list[Node] | None:
    """Do what a run did, and return its events; `None`, with nothing done but imports, in other surroundings."""
    store = m.store
    body: list[Node] = []
    before: dict[Key, Value | None] = {}
    inner: dict[tuple[ast.AST, Module], Call] = {}
    for part in run.parts:
        if not _holds(m, part.reads):
            _restore(m, before)
            return None
        if len(run.parts) > 1:
            for key in part.writes:
                before.setdefault(key, store.base.get(key))
        store.base.update(part.writes)
        for key in part.writes.keys() & store.cells.keys():
            del store.cells[key]
        body += _with_imports(part.body, inner) if part.has_inner else part.body
        if part.imported is not None:
            events = program.run_again(m, part.imported)
            if events is not None and events.items and part.node is not None:
                call = Call(part.node, module, part.imported, events)
                if part.is_inner:
                    inner[part.node, part.imported] = call
                else:
                    body.append(call)
    body += inner.values()  # what had been imported before when this run was kept
    _restore(m, {key: before.get(key) for key in run.undone})
    for owner in run.names.keys() & store.names.keys():
        if store.names[owner] is not run.names[owner]:
            run.names[owner].update(store.names[owner])
    store.names.update(run.names)
    return body


def _restore(m: Machine, cells: dict[Key, Value | None]) -> None:
    for key, value in cells.items():
        if value is None:
            m.store.base.pop(key, None)
        else:
            m.store.base[key] = value


def _is_import(node: Node) -> bool:
    return isinstance(node, Call) and isinstance(node.function, Module)


def _with_imports(nodes: list[Node], inner: dict[tuple[ast.AST, Module], Call]) -> list[Node]:
    """Return nodes with what modules do this time that are imported inside; what is placed is taken out of `inner`."""
    placed: list[Node] = []
    for node in nodes:
        if isinstance(node, Call) and isinstance(node.function, Module):
            call = inner.pop((node.node, node.function), None)
            placed += [call] if call is not None else []
        else:
            placed.append(_with_inner(node, inner))
    return placed


def _with_inner(node: Node, inner: dict[tuple[ast.AST, Module], Call]) -> Node:
    if not any(_is_import(below) for below in walk(node)):
        return node

    def placed(body: Seq) -> Seq:
        return Seq(_with_imports(body.items, inner))

    if isinstance(node, Seq):
        return placed(node)
    if isinstance(node, Alt):
        return replace(node, then=placed(node.then), orelse=placed(node.orelse))
    if isinstance(node, Loop):
        return replace(node, body=placed(node.body), orelse=placed(node.orelse))
    if isinstance(node, Call | Context):
        return replace(node, body=placed(node.body))
    if isinstance(node, Try):
        body, handlers = placed(node.body), [placed(handler) for handler in node.handlers]
        return replace(node, body=body, handlers=handlers, orelse=placed(node.orelse), final=placed(node.final))
    return node


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
