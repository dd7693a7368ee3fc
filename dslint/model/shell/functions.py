"""Functions of a script: at a call the body runs with its arguments; one that nobody calls runs with unknown ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.model.launch.command import Word
from dslint.model.shell.pieces import Value
from dslint.model.shell.scope import Scope

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.model.shell.commands import CommandReader

# Calls of calls: enough for every launch script, little enough for a hostile one.
_MAX_CALLS = 100
_MAX_DEPTH = 8
_RETURNS = re.compile(r"\b(?:return|exit)\b")
_ARGUMENTS = (*"123456789", "@")


@dataclass(slots=True)
class Function:
    """A function: the reader of its text, its body, and the names that it may set (``None``: any).

    ``outer`` is the state at the definition, for a function that nobody calls.
    """

    reader: CommandReader
    body: Node
    names: set[str] | None
    outer: Scope
    is_called: bool = False
    is_ambiguous: bool = False


@dataclass(slots=True)
class Functions:
    """The functions that a script knows, and the calls that are open."""

    found: dict[str, Function] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    calls: int = 0
    depth: int = 0
    # What ``local`` hides, one entry an open call.
    hidden: list[dict[str, Value | None]] = field(default_factory=list)
    unset: list[set[str]] = field(default_factory=list)
    # The files that are being sourced.
    sources: list[str] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.found

    @property
    def is_inside(self) -> bool:
        """A body is being run."""
        return self.depth > 0

    def define(self, name: str, function: Function) -> None:
        """``name() { ... }``; of two definitions nobody knows which one runs."""
        old = self.found.get(name)
        if old is not None and old.body.id != function.body.id:
            function.is_ambiguous = True
            function.names = None if old.names is None or function.names is None else old.names | function.names
            self.run_uncalled(old)
        self.found[name] = function

    def names(self, name: str) -> set[str] | None:
        """Names that a call may set, by itself or through other functions."""
        function = self.found[name]
        return set() if function.names == set() else _union(self.found.values())

    def call(self, name: str, words: Sequence[Word], scope: Scope) -> None:
        """Run the body in the caller's state, as bash does."""
        function = self.found[name]
        self.calls += 1
        if function.is_ambiguous or name in self.open or len(self.open) >= _MAX_DEPTH or self.calls > _MAX_CALLS:
            scope.forget(self.names(name))
            return
        function.is_called = True
        before = scope.copy()
        bind(words, scope)
        self.open.append(name)
        self.hidden.append({})
        self.unset.append(set())
        self._run(function, scope)
        self.open.pop()
        self._restore(before, scope)
        if _RETURNS.search(function.reader.doc.raw(function.body)):
            scope.merge(before)

    def keep(self, name: str, scope: Scope) -> None:
        """``local name``: the caller gets its value back."""
        if not self.hidden or name in self.hidden[-1] or name in self.unset[-1]:
            return
        if name in scope.values:
            self.hidden[-1][name] = scope.values[name]
        else:
            self.unset[-1].add(name)

    def finish(self) -> None:
        """Run the functions that nobody called: their commands are there to be read."""
        for function in list(self.found.values()):
            self.run_uncalled(function)

    def run_uncalled(self, function: Function) -> None:
        """The body with arguments that nobody knows."""
        if not function.is_called:
            function.is_called = True
            function.outer.forget(_ARGUMENTS)
            self._run(function, function.outer)

    def _run(self, function: Function, scope: Scope) -> None:
        reader = function.reader
        position, reader.read_up_to = reader.read_up_to, 0
        self.depth += 1
        reader.visit(function.body, scope)
        self.depth -= 1
        reader.read_up_to = position

    def _restore(self, before: Scope, scope: Scope) -> None:
        for name in _ARGUMENTS:
            scope.values.pop(name, None)
            if name in before.values:
                scope.values[name] = before.values[name]
        for name, value in self.hidden.pop().items():
            scope.assign(name, value)
        for name in self.unset.pop():
            scope.remove(name)


def bind(words: Sequence[Word], scope: Scope) -> None:
    """``$1``, ``$2``, ... ``"$@"`` for these words."""
    certain = next((i for i, w in enumerate(words) if w.text is None and w.spreads), len(words))
    for number in range(1, 10):
        word = words[number - 1] if number <= len(words) else None
        name = str(number)
        if word is not None and number <= certain:
            places = (*word.origins, word.location) if word.origins else (word.location,)
            scope.values[name] = Value(word.text, None, places) if word.text is not None else None
        elif certain < len(words):
            scope.values[name] = None
        else:
            scope.values[name] = Value()
    texts = tuple(w.text for w in words if w.text is not None)
    whole = Value("", texts, (), tuple((w.origins or (w.location,))[0] for w in words), first=1)
    scope.values["@"] = whole if len(texts) == len(words) else None


def _union(functions: Iterable[Function]) -> set[str] | None:
    names: set[str] = set()
    for function in functions:
        if function.names is None:
            return None
        names |= function.names
    return names
