"""A question about the command line of a script: what must be read for it, and when it is answered.

A module that a file imports at its top is read where one of its names is, unless its words say that it parses the
command line while it is imported. The interpretation ends where nothing that is left can parse again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from dslint.python.attributes import is_instance_of
from dslint.python.heap import Frame, OutOfBudgetError
from dslint.python.importgraph import File, ImportGraph, names_in
from dslint.python.questions import Question
from dslint.python.source import Module
from dslint.python.values import NOTHING, OPAQUE, Api, Value, one, unknown

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.python.files import Files
    from dslint.python.machine import Machine

_MOST_FILES = 600
# More steps than any entry may take: what is left is not run.
_OVER = 1_000_000_000
_ARGV = frozenset({"argv"})


class Focus:
    """The question for one script."""

    def __init__(self, graph: ImportGraph, files: Files, script: str, question: Question) -> None:
        self.graph, self._all, self.script, self.question = graph, files, script, question
        self.forks = 0  # calls that are under way, of one of several functions or of what makes several things
        self.is_answered = self.first_is_answered = False
        self._arriving: set[tuple[int, str]] = set()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Let nothing end inside a call."""
        self.forks += 1
        try:
            yield
        finally:
            self.forks -= 1

    @cached_property
    def _reached(self) -> dict[str, File]:
        return self._within(self.question.steps)

    def _within(self, steps: int) -> dict[str, File]:
        """Return the files that so many imports lead to, and the packages around them."""
        found: dict[str, File] = {}
        pending = [(self.script, 0)]
        while pending and len(found) < _MOST_FILES:
            path, depth = pending.pop()
            file = self.graph.file(self._all, path) if path not in found else None
            if file is not None:
                found[path] = file
                pending += [(inner, depth + 1) for inner in file.imports] if depth < steps else ()
        return found

    @cached_property
    def _at_once(self) -> set[str]:
        """Return the files that do what is asked about while they are imported, and who imports them."""
        found = {path for path, file in self._reached.items() if self._does(file, self.question)}
        importers: dict[str, list[str]] = {}
        for path, file in self._reached.items():
            for inner in file.imports:
                importers.setdefault(inner, []).append(path)
        pending = list(found)
        while pending:
            more = [path for path in importers.get(pending.pop(), ()) if path not in found]
            found.update(more)
            pending += more
        return found

    def _does(self, file: File, question: Question) -> bool:
        return file.changes_words or file.does(question)

    def _is_all_near(self, question: Question) -> bool:
        """Return whether no file further away does what a question asks about while it is imported."""
        everywhere = self._within(question.steps)
        return not any(self._does(file, question) for path, file in everywhere.items() if path not in self._reached)

    @property
    def matters(self) -> bool:
        """Return whether the script may parse its command line at all."""
        own, anywhere = self.graph.file(self._all, self.script), self.question.anywhere
        if own is not None and anywhere.search(own.text):
            return True
        return any(file.mentions(self.question) for file in self._reached.values())

    # -- imports ------------------------------------------------------------------------------------------------

    def waits(self, m: Machine, node: ast.Import | ast.ImportFrom) -> bool:
        """Put off an import at the top of a module until one of its names is read; return whether that is done."""
        frame = m.frame
        if frame.function is not None or frame.class_body is not None:
            return False
        is_top = any(node is statement for statement in _at_top(frame.module.tree))
        if not is_top and frame.module.absolute == m.program.main:
            return False
        names = [a.name for a in node.names]
        homes = names if isinstance(node, ast.Import) else [f"{'.' * node.level}{node.module or ''}"]
        if "*" in names:
            return not is_top
        for home in homes:
            path = m.program.resolve(frame.module, home)
            if path in self._at_once:
                return False
            if not path and (isinstance(node, ast.Import) or not home.startswith(".")):
                return False
        for alias in node.names:
            bound = alias.asname or (alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name)
            if not is_top:  # another way may bind the name, too
                m.store.set((frame.id, bound), unknown(OPAQUE, f"`{bound}` is not read"))
                continue
            imports = m.shared.waiting.setdefault((frame.id, bound), [])
            if not any(known is alias for _, _, known in imports):
                imports.append((frame.module, node, alias))
            m.store.set((frame.id, bound), NOTHING)
        return True

    def library_parser(self, m: Machine, home: str, name: str) -> Value | None:
        """Return a class of parsers that rows describe, also in the project of the library itself; else `None`."""
        path = m.libraries.canonical(f"{home}.{name}")
        is_known = not home.startswith(".") and m.libraries.class_(path) is not None
        return one(Api(path)) if is_known and is_instance_of(m, path, "parser") else None

    def arrived(self, m: Machine, frame: int, name: str) -> Value | None:
        """Return what a name means whose import was put off; the import takes place."""
        found: Value | None = None
        if (frame, name) in self._arriving:
            return None
        self._arriving.add((frame, name))
        for module, node, alias in m.shared.waiting.get((frame, name), ()):
            if isinstance(node, ast.ImportFrom):
                home = f"{'.' * node.level}{node.module or ''}"
                found = m.program.member(m, module, home, alias.name, node)
            else:
                found = m.program.imported(m, module, alias.name, node)
                if not alias.asname:
                    found = m.program.imported(m, module, alias.name.partition(".")[0], node)
        self._arriving.discard((frame, name))
        if found is not None:
            m.store.set((frame, name), found)
        return found

    def is_idle(self, m: Machine, node: ast.expr, statement: ast.stmt) -> bool:
        """Return whether a call at the top of a module, for its effect or as a test, says nothing of a command line.

        It is one of a function whose import was put off, with constants, and no options are added under it.
        """
        frame, call = m.frame, node.operand if isinstance(node, ast.UnaryOp) else node
        if frame.function is not None or frame.class_body is not None or not isinstance(call, ast.Call):
            return False
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not isinstance(call.func, ast.Name) or not all(isinstance(value, ast.Constant) for value in given):
            return False
        cell, home = (frame.id, call.func.id), frame.module
        stored = m.store.peek(cell)
        if cell not in m.shared.waiting or (stored is not None and stored.atoms):
            return False
        words = self.question.all_words | _ARGV
        named = names_in(home.lines(statement.lineno, statement.end_lineno or statement.lineno))
        if not named.isdisjoint(words):
            return False
        found = self.graph.mentioned(self._all, home.absolute, frozenset((call.func.id,)))
        return bool(found) and not any(self.graph.leads(self._all, *one, words) for one in found)

    def handed_on(self, m: Machine, source: int, target: int) -> None:
        """Give the names whose import was put off to a module that imports all of another one."""
        for (frame, name), imports in list(m.shared.waiting.items()):
            if frame == source and not name.startswith("_"):
                m.shared.waiting.setdefault((target, name), list(imports))

    # -- the end ------------------------------------------------------------------------------------------------

    def leads(self, module: Module, words: frozenset[str], question: Question) -> bool:
        """Return whether one of some names is imported by a module from one that parses a command line by its words.

        Of a module that is imported as a whole, what has one of the names.
        """
        path = module.absolute
        steps = question.steps - 1
        found = self.graph.mentioned(self._all, path, words) if steps >= 0 else set()
        return any(self.graph.leads(self._all, *home, question.words, steps) for home in found if home[0] != path)

    def binds(self, module: Module, name: str) -> bool:
        """Return whether a module may have a name from another one."""
        file = self.graph.file(self._all, module.absolute)
        return file is None or name in file.names or file.imports_all

    def imports(self, module: Module, other: Module) -> bool:
        """Return whether a module imports another one, or a part of it."""
        file = self.graph.file(self._all, module.absolute)
        return file is None or other.absolute in file.imports

    def is_named(self, node: ast.AST, module: Module) -> bool:
        """Return whether a function itself mentions what is asked about."""
        text = module.text(node)
        return self.question.anywhere.search(text) is not None and not names_in(text).isdisjoint(self.question.words)

    def is_missed(self, m: Machine, node: ast.AST, module: Module) -> bool:
        """Return whether code that was passed over may parse the command line by the names in it."""
        relevance = m.program.relevance(m)
        return relevance.leads(relevance.words(node, module), module, self.question)

    def happened(self, m: Machine, event: Event) -> None:
        """End the interpretation at a call that is asked about, where nothing after it leads to another one.

        Raises:
            OutOfBudgetError: the question is answered.
        """
        if self.forks or not self._is_asked(event) or (self.question.is_open and m.tries):
            return
        first = self.question.first
        if first is not None and event.tags & first.tags:
            self.first_is_answered = not m.lost and self._is_last(m, event.node, first) and self._is_all_near(first)
        if not self._is_last(m, event.node, self.question):
            return
        self.is_answered = True
        m.steps = _OVER
        raise OutOfBudgetError

    def _is_asked(self, event: Event) -> bool:
        if event.command_line is not None:
            return event.command_line.parses
        return event.api in self.question.apis or bool(event.tags & self.question.tags)

    def _is_last(self, m: Machine, node: ast.AST, question: Question) -> bool:
        frame: Frame | None = m.frame
        at: ast.AST | None = node
        relevance = m.program.relevance(m)
        # What runs now is not called again by what follows.
        running: list[ast.AST] = []
        while frame is not None:
            scope: ast.AST = frame.function.node if frame.function is not None else frame.module.tree
            is_module = frame.function is None and frame.module.absolute == m.program.main
            if frame.loops or frame.on_yield is not None or at is None or not (frame.function or is_module):
                return False
            if frame.class_body is not None:
                return False
            running.append(scope)
            words = names_in(_rest(frame.module, at, scope))
            if relevance.leads(words, frame.module, question, running):
                return False
            at, frame = frame.call, frame.parent
        return True


def _at_top(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements at the top of a module, and those for type checkers: a package may load them by name."""
    for statement in tree.body:
        yield statement
        if isinstance(statement, ast.If) and _name(statement.test) == "TYPE_CHECKING":
            yield from statement.body


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def tested(m: Machine, node: ast.expr, statement: ast.stmt) -> Value:
    """Return the value of a test, or of a call for its effect; nobody knows it where the question needs it not."""
    from dslint.python.expressions import evaluate

    if m.program.focus is not None and m.program.focus.is_idle(m, node, statement):
        return unknown(OPAQUE, "it is not read")
    return evaluate(m, node)


def waits(m: Machine, node: ast.Import | ast.ImportFrom) -> bool:
    """Put off an import where the question lets it wait; return whether that is done."""
    return m.program.focus is not None and m.program.focus.waits(m, node)


def _rest(module: Module, node: ast.AST, scope: ast.AST) -> str:
    """Return the text of a scope that runs after a call: what is around the call in its statement, and what follows."""
    line = getattr(node, "lineno", 0)
    statement, body = node, getattr(scope, "body", [])
    while isinstance(body, list):
        inside = [s for s in body if isinstance(s, ast.stmt) and s.lineno <= line <= (s.end_lineno or 0)]
        if not inside:
            break
        statement = inside[0]
        parts = (getattr(statement, name, []) for name in ("body", "orelse", "finalbody"))
        handlers = [s for handler in getattr(statement, "handlers", ()) for s in handler.body]
        body = [*(s for part in parts if isinstance(part, list) for s in part), *handlers]
    around = ""
    if not hasattr(statement, "body"):
        inner = {id(part) for part in ast.walk(node)}
        calls = (part for part in ast.walk(statement) if isinstance(part, ast.Call) and id(part) not in inner)
        around = " ".join(ast.unparse(call.func) for call in calls)
        node = statement
    last = getattr(scope, "end_lineno", None) or len(module.source.line_starts)
    return f"{around}\n{module.lines((getattr(node, 'end_lineno', None) or line) + 1, last)}"
