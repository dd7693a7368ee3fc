"""What the instruments of a program call: values of expressions, the context they came in, executed lines."""

from __future__ import annotations

import copy
import sys
import types
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .instrument import Sites
from .ranks import Rank, RunawayError, WorldEndedError
from .standins.tensors import Tensor

ACTIVATION = "__judge_a__"
PLAIN = (int, float, complex, str, bytes, bool, type(None), type, types.FunctionType, range, slice)


@dataclass(frozen=True)
class Budget:
    """Bounds of one rank: executed lines, and recorded values of one expression."""

    lines: int = 100_000
    values: int = 64


@dataclass(slots=True)
class Activation:
    """One call of a function: where it was called from, and how far each of its loops is."""

    context: int
    counters: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Instance:
    """One evaluation of an expression: its context (equal numbers mean equal contexts on all ranks) and its value."""

    key: tuple[Any, ...]
    value: Any
    late: bool = False  # after an exception that the program does not state


def snapshot(value: Any, depth: int = 3) -> Any:
    """The value as it is now: containers are copied, objects of classes are kept."""
    kind = type(value)
    if kind in PLAIN or depth == 0:
        return value
    if kind is Tensor:
        copied = Tensor.__new__(Tensor)
        copied.__dict__.update(value.__dict__, flat=list(value.flat))
        return copied
    if kind in (list, tuple) and len(value) <= 64:
        return kind(snapshot(v, depth - 1) for v in value)
    if kind is dict and len(value) <= 64:
        return {k: snapshot(v, depth - 1) for k, v in value.items()}
    if kind in (defaultdict, OrderedDict, Counter) and len(value) <= 64:
        copied = copy.copy(value)
        copied.update({k: snapshot(v, depth - 1) for k, v in value.items()})
        return copied
    if isinstance(value, set) and len(value) <= 64 and kind.__module__ == "builtins":
        return set(set.__iter__(value))
    return value


class LoopItems:
    """The items of a loop, counted. It asks the iterable for its iterator at once, as `for` does."""

    __slots__ = ("_activation", "_count", "_items", "_loop", "_recorder")

    def __init__(self, recorder: Recorder, activation: Activation, loop: int, iterable: Any) -> None:
        self._items = iter(iterable)
        self._recorder, self._activation, self._loop, self._count = recorder, activation, loop, 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        recorder = self._recorder
        before = recorder.entered
        recorder.entered = recorder.context(("next", self._loop, self._activation.context, self._count))
        try:
            item = next(self._items)
        finally:
            recorder.entered = before
        self._activation.counters[self._loop] = self._count
        self._count += 1
        recorder.tick()
        return item


class Recorder:
    """Takes notes for one rank."""

    def __init__(self, rank: Rank, sites: Sites, budget: Budget) -> None:
        self.rank, self.sites, self.budget = rank, sites, budget
        self.values: dict[int, list[Instance]] = {}
        self.counts: dict[int, int] = {}
        self.lines: set[tuple[str, int]] = set()
        self.entered = 0  # the context of the innermost expression that is being evaluated
        self._site = -1  # its site
        self._contexts: dict[Any, int] = rank.world.shared.setdefault("contexts", {})
        self._entries: dict[int, int] = {}
        self._steps = 0
        self._declared: list[BaseException] = []

    def names(self) -> dict[str, Any]:
        """What instrumented code finds among its builtins."""
        found = ("push", "rec", "name", "enter", "loop", "reset", "turn", "line", "caught", "raising", "own_set")
        return {f"__judge_{name}__": getattr(self, name) for name in found}

    def context(self, key: Any) -> int:
        """A number for `key`, the same on every rank of the run."""
        return self._contexts.setdefault(key, len(self._contexts) + 1)

    def begin_module(self, names: dict[str, Any]) -> None:
        names[ACTIVATION] = Activation(self.context(("module", names["__name__"])))

    def tick(self) -> None:
        self._steps += 1
        if self._steps > self.budget.lines:
            self.rank.world.end("the program runs for too long")
            raise WorldEndedError from RunawayError()

    # -- called by the program
    def enter(self) -> Activation:
        """A function begins."""
        self.check(sys.exc_info()[1])
        self._site = -1
        nth = self._entries[self.entered] = self._entries.get(self.entered, 0) + 1
        return Activation(self.context(("call", self.entered, nth)))

    def _key(self, activation: Activation, site: int) -> tuple[Any, ...]:
        place = self.sites.places[site]
        base = self.entered if place.in_lambda else activation.context
        counters = activation.counters
        return (site, base, *(counters.get(loop, -1) for loop in place.loops))

    def push(self, activation: Activation, site: int) -> tuple[int, int, Any]:
        """An expression begins."""
        key = self._key(activation, site)
        token = (self.entered, self._site, key)
        self.entered, self._site = self.context(key), site
        return token

    def rec(self, token: tuple[int, int, Any], value: Any) -> Any:
        """The expression has a value."""
        self.entered, self._site, key = token
        self._note(key, value)
        return value

    def name(self, activation: Activation, site: int, value: Any) -> Any:
        """A name was read."""
        self._note(self._key(activation, site), value)
        return value

    def _note(self, key: tuple[Any, ...], value: Any) -> None:
        site = key[0]
        count = self.counts[site] = self.counts.get(site, 0) + 1
        if count <= self.budget.values:
            self.values.setdefault(site, []).append(Instance(key, snapshot(value), self.rank.cut_at is not None))

    def loop(self, activation: Activation, loop: int, iterable: Any) -> LoopItems:
        return LoopItems(self, activation, loop, iterable)

    def reset(self, activation: Activation, loop: int) -> None:
        """A `while` statement begins."""
        activation.counters[loop] = 0

    def turn(self, activation: Activation, loop: int) -> None:
        """The body of a `while` begins."""
        activation.counters[loop] = activation.counters.get(loop, 0) + 1

    def line(self, number: int) -> None:
        self.lines.add(self.sites.lines[number])
        self.tick()

    def caught(self, activation: Activation) -> None:
        """A handler, a `finally` or the way out of a `with` begins: is an undeclared exception on its way?"""
        error = sys.exc_info()[1]
        if isinstance(error, WorldEndedError):
            raise error
        self.check(error)
        self.entered, self._site = self.context(("handler", activation.context)), -1

    def raising(self, what: Any) -> Any:
        """A `raise` statement: this exception is declared."""
        if isinstance(what, type) and issubclass(what, BaseException):
            what = what()
        if isinstance(what, BaseException):
            self._declared.append(what)
        return what

    def own_set(self, value: set[Any]) -> Any:
        from .surroundings import RankSet

        return RankSet(value)

    # -- called by the harness
    def is_declared(self, error: BaseException) -> bool:
        """Whether a statement of the program makes this exception, or an exiting call."""
        return isinstance(error, SystemExit | GeneratorExit | WorldEndedError) or any(
            e is error for e in self._declared
        )

    def check(self, error: BaseException | None) -> None:
        """Cut the trace if an exception that the program does not state is on its way."""
        if error is None or self.rank.cut_at is not None or self.is_declared(error):
            return
        self.rank.cut_at = len(self.rank.trace)
        self.rank.cut_by = f"{type(error).__name__}: {error}"

    def event_place(self) -> tuple[str, int, int] | None:
        """Where the call expression stands that is being evaluated; None if no call is."""
        self.check(sys.exc_info()[1])
        if self._site < 0:
            return None
        place = self.sites.places[self._site]
        return (place.path, place.line, place.col) if place.kind == "Call" else None
