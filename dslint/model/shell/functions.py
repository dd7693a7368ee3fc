"""Functions of a script: at a call the body runs with its arguments; one that nobody calls runs with unknown ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from dslint.core.source import Span
from dslint.model.launch.command import Word
from dslint.model.shell.flow.choices import UNSET, Unknown, World
from dslint.model.shell.flow.trees import mapped, tree_of
from dslint.model.shell.pieces import Value
from dslint.model.shell.scope import Scope

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.model.shell.commands import CommandReader

# Calls of calls: enough for every launch script, little enough for a hostile one.
_MAX_CALLS = 100
_MAX_DEPTH = 8
_ARGUMENTS = (*"123456789", "@")


@dataclass(slots=True)
class Function:
    """A function: the reader of its text, its body, and the names that it may set (``None``: any).

    ``outer`` is the state at the definition, for a function that nobody calls.
    """

    reader: CommandReader
    body: Node
    names: Set[str] | None
    outer: Scope
    is_called: bool = False
    is_ambiguous: bool = False


@dataclass(slots=True)
class Frame:
    """An open call: what ``local`` hides, and the states in which ``return`` left the body.

    ``doubtful``: names that may have been made local or not. ``guards`` is the number of tests that led to the call.
    """

    guards: int = 0
    hidden: dict[str, Any] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    returns: list[Scope] = field(default_factory=list)


@dataclass(slots=True)
class Functions:
    """The functions that a script knows, and the calls that are open."""

    found: dict[str, Function] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    calls: int = 0
    depth: int = 0
    frames: list[Frame] = field(default_factory=list)
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

    def names(self, name: str) -> Set[str] | None:
        """Names that a call may set, by itself or through other functions."""
        function = self.found[name]
        return set() if function.names == set() else _union(self.found.values())

    def call(self, name: str, caller: CommandReader, raws: Sequence[tuple[str, Span]], scope: Scope) -> None:
        """Run the body in the caller's state, as bash does."""
        function = self.found[name]
        self.calls += 1
        if function.is_ambiguous or name in self.open or len(self.open) >= _MAX_DEPTH or self.calls > _MAX_CALLS:
            scope.forget(self.names(name), f"set by the function `{name}`")
            return
        function.is_called = True
        before = {n: scope.values[n] for n in _ARGUMENTS if n in scope.values}
        bind(caller, raws, scope)
        self.open.append(name)
        frame = Frame(len(scope.guards))
        self._run(function, scope, frame)
        self.open.pop()
        for number in _ARGUMENTS:
            scope.values.pop(number, None)
        scope.values.update(before)
        for local, value in frame.hidden.items():
            if local in frame.doubtful:
                scope.forget({local}, "local under a condition")
            else:
                _give_back(local, value, scope)

    def keep(self, name: str, scope: Scope) -> None:
        """``local name``: the caller gets its value back."""
        if not self.frames or name in self.frames[-1].hidden:
            return
        frame = self.frames[-1]
        frame.hidden[name] = scope.values.get(name, UNSET)
        if len(scope.guards) > frame.guards:
            frame.doubtful.add(name)

    def leave(self, scope: Scope) -> None:
        """``return``: the control flow goes on behind the call, or behind ``source``."""
        if self.frames:  # elsewhere it is an error, and the script goes on
            self.frames[-1].returns.append(scope.copy())
            scope.ended = True

    @contextmanager
    def apart(self) -> Iterator[None]:
        """For code whose ``return`` ends nothing outside: a subshell, a part of a pipeline."""
        frames = self.frames
        self.frames = [Frame()] if frames else []
        yield
        self.frames = frames

    @contextmanager
    def sourcing(self, scope: Scope) -> Iterator[None]:
        """For a file that is sourced: ``return`` ends the file, ``local`` belongs to the function around."""
        around = self.frames[-1] if self.frames else Frame()
        frame = Frame(around.guards, around.hidden, around.doubtful)
        guards = len(scope.guards)
        self.frames.append(frame)
        yield
        self.frames.pop()
        gather(scope, frame.returns, guards)

    def finish(self) -> None:
        """Run the functions that nobody called: their commands are there to be read."""
        for function in list(self.found.values()):
            self.run_uncalled(function)

    def run_uncalled(self, function: Function) -> None:
        """The body with arguments that nobody knows."""
        if not function.is_called:
            function.is_called = True
            function.outer.forget(_ARGUMENTS, "an argument of a function that nobody calls")
            self._run(function, function.outer, Frame(len(function.outer.guards)))

    def _run(self, function: Function, scope: Scope, frame: Frame) -> None:
        reader = function.reader
        position, reader.read_up_to = reader.read_up_to, 0
        loops, reader.loops = reader.loops, []
        self.depth += 1
        self.frames.append(frame)
        reader.visit(function.body, scope)
        self.frames.pop()
        self.depth -= 1
        reader.read_up_to, reader.loops = position, loops
        gather(scope, frame.returns, frame.guards)


def gather(scope: Scope, ends: Sequence[Scope], guards: int) -> None:
    """Bring together the end of a piece of code and the places where it was left early.

    ``guards`` is the number of tests that led to the piece.
    """
    alive = [end for end in ends if len(end.guards) >= guards]
    if scope.ended and alive:
        scope.become(alive.pop())
        scope.ended = False
        if not alive:
            return
    for end in reversed(alive):
        scope.join(end, end.guards[guards:])
    if alive:
        scope.guards = scope.guards[:guards]


def _give_back(name: str, value: Any, scope: Scope) -> None:
    if value is UNSET:
        scope.remove(name)
    else:
        scope.assign(name, value)


def bind(caller: CommandReader, raws: Sequence[tuple[str, Span]], scope: Scope) -> None:
    """``$1``, ``$2``, ... ``"$@"`` for these words."""
    state = scope.copy()

    def compute(world: World) -> tuple[Word, ...]:
        return tuple(word for raw, span in raws for word in caller.words(raw, span, state, world))

    words = tree_of(compute, scope.here())
    if words is None:
        scope.forget(_ARGUMENTS, "depends on a condition")
    else:
        bind_words(words, scope)


def bind_words(words: Any, scope: Scope) -> None:
    """``$1``, ``$2``, ... for words that are expanded already, or for a choice between such words."""
    words = tuple(words) if isinstance(words, Sequence) else words
    whole = mapped(words, _all_arguments)
    for number in range(1, 10):
        scope.assign(str(number), mapped(words, partial(_argument, number)))
    scope.assign("@", whole)


def _all_arguments(words: tuple[Word, ...]) -> Value | Unknown:
    texts = tuple(w.text for w in words if w.text is not None)
    if len(texts) < len(words):
        return Unknown(next(w.why for w in words if w.text is None))
    return Value("", texts, (), tuple((w.origins or (w.location,))[0] for w in words), first=1)


def _argument(number: int, words: tuple[Word, ...]) -> Value | Unknown:
    certain = next((i for i, w in enumerate(words) if w.text is None and w.spreads), len(words))
    if number > len(words) and certain == len(words):
        return Value()
    if number > certain or number > len(words) or (text := words[number - 1].text) is None:
        return Unknown(words[min(number, len(words)) - 1].why)
    word = words[number - 1]
    return Value(text, None, (*word.origins, word.location) if word.origins else (word.location,))


def argument(number: int, whole: Any) -> Value | Unknown:
    """``$2`` of all arguments."""
    if not isinstance(whole, Value) or whole.items is None:
        return Unknown(getattr(whole, "why", ""))
    if number > len(whole.items):
        return Value()
    return Value(whole.items[number - 1], None, whole.places[number - 1 : number])


def _union(functions: Iterable[Function]) -> Set[str] | None:
    names: set[str] = set()
    for function in functions:
        if function.names is None:
            return None
        names |= function.names
    return names
