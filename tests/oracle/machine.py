"""The oracle: run a program on every rank, under every assignment of its unknowns, and compare what the ranks did."""

from __future__ import annotations

import ast
import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from oracle.modules import namespace
from oracle.stubs import Rank, Runaway, Suspended

PROGRAM = "program"
WORLDS = (2, 3)
# Asked before an alarm is called false: tests that are complete for three ranks need not be for five.
LARGER_WORLDS = (4, 5)
# Flags that are the same on every rank, and what may differ between ranks: the words by which a program shows them.
FLAGS = ("verbose", "do_eval", "use_ema", "save_best", "debug", "resume", "mode", "exists")
FACTS = {
    "nan": ("isnan", "isfinite", "isinf"),
    "empty": ("len(batch)",),
    "mask": ("'mask'",),
    "labels": ("'labels'",),
    "oom": ("except RuntimeError",),
    "clock": ("time.time()",),
    "random": ("random.random()",),
}
SET = "a set of ranks"


class BrokenProgramError(Exception):
    """The generated program is no sensible program: it crashes by mistake, or does not end."""


@dataclass(frozen=True)
class Outcome:
    """What one rank did. ``waits``: it stands in a collective whose result it needs. ``crashed``: it raised."""

    trace: tuple[tuple[str, int | None, str], ...]
    waits: tuple[str, int, Any] | None = None
    crashed: bool = False
    subgroups: int = 0


@dataclass(frozen=True)
class Difference:
    """An assignment under which the ranks part."""

    world: int
    flags: dict[str, bool]
    data: tuple[dict[str, bool], ...]
    traces: tuple[tuple[tuple[str, int | None, str], ...], ...]


class Machine:
    """One program, ready to run. ``by_design``: unknown sets of ranks are flags, an exception ends the job."""

    def __init__(self, source: str, *, by_design: bool = False, worlds: tuple[int, ...] = WORLDS) -> None:
        tree = _Ticking().visit(ast.parse(source))
        if by_design:
            tree = _SetsAsFlags().visit(tree)
        code = ast.unparse(tree)
        self.code = compile(ast.fix_missing_locations(tree), PROGRAM, "exec")
        self._by_design, self._worlds = by_design, worlds
        self.flags = [f for f in FLAGS if re.search(rf"\b{f}\b", code)] + ([SET] if "_set" in code else [])
        self.facts = [f for f, words in FACTS.items() if any(w in code for w in words)]
        self._done: dict[Any, Outcome] = {}
        self.subgroups = 0
        self.reached: set[int] | None = None

    def cover(self) -> set[int]:
        """The lines that some rank comes to under some assignment of a program whose ranks stay together."""
        self.reached = set()
        self._done.clear()
        self.difference()
        return self.reached

    def difference(self) -> Difference | None:
        """The first assignment under which two ranks issue different collectives."""
        for world in self._worlds:
            for flags, data in every_assignment(self, world):
                found = self._parted(world, flags, data)
                if found is not None:
                    return Difference(world, flags, data, found)
        return None

    def _parted(self, world: int, flags: dict[str, bool], data: tuple[dict[str, bool], ...]) -> tuple[Any, ...] | None:
        known: tuple[Any, ...] = ()
        while True:
            ranks = [self._outcome(r, world, flags, data[r], known) for r in range(world)]
            self.subgroups += sum(r.subgroups for r in ranks)
            if self._by_design and any(r.crashed for r in ranks):
                return None
            traces = tuple(r.trace for r in ranks)
            if _differ(traces):
                return traces
            waiting = [r.waits for r in ranks if r.waits is not None]
            if not waiting:
                return None
            known = (*known, combined(waiting))

    def _outcome(self, rank: int, world: int, flags: dict[str, bool], data: dict[str, bool], known: Any) -> Outcome:
        key = (rank, world, tuple(flags.values()), tuple(data.values()), repr(known))
        found = self._done.get(key)
        if found is None:
            me = Rank(rank, world, flags, data, known)
            found = self._done[key] = run(self.code, me) if self.reached is None else self._watched(me)
        return found

    def _watched(self, me: Rank) -> Outcome:
        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename != PROGRAM:
                return None
            assert self.reached is not None
            self.reached.add(frame.f_lineno)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return run(self.code, me)
        finally:
            sys.settrace(before)


def run(code: CodeType, me: Rank) -> Outcome:
    """Execute the program as one rank."""
    waits, crashed = None, False
    scope = namespace(me)
    try:
        exec(code, scope)  # noqa: S102 - the program is our own
        if "main" in scope:
            _call(scope["main"], scope["_known"])
    except Suspended as stop:
        waits = (stop.kind, stop.root, stop.payload)
    except SystemExit:
        pass
    except (ValueError, RuntimeError):
        crashed = True
    except (Exception, Runaway) as error:
        raise BrokenProgramError(repr(error)) from error
    return Outcome(tuple(me.trace), waits, crashed, me.subgroups)


def _call(main: Any, known: Any) -> None:
    names = main.__code__.co_varnames[: main.__code__.co_argcount]
    main(*[getattr(known, name) for name in names])


def every_assignment(machine: Machine, world: int) -> Iterator[tuple[dict[str, bool], tuple[dict[str, bool], ...]]]:
    """All values of the flags, and of the facts of each rank."""
    for flags in _assignments(machine.flags):
        for data in itertools.product(*[list(_assignments(machine.facts))] * world):
            yield flags, data


def _assignments(names: Iterable[str]) -> Iterator[dict[str, bool]]:
    names = list(names)
    for values in itertools.product((False, True), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def _differ(traces: tuple[tuple[tuple[str, int | None, str], ...], ...]) -> bool:
    """Other operations or roots; or the same reductions of named tensors in another order."""
    if len({tuple((kind, root) for kind, root, _ in t) for t in traces}) > 1:
        return True
    labels = [[label for _, _, label in t if label] for t in traces]
    return any(a != labels[0] and sorted(a) == sorted(labels[0]) for a in labels)


def combined(brought: list[tuple[str, int, Any]]) -> Any:
    """What a collective gives; ranks that meet it with another call of the same name bring nothing."""
    kind, root, _ = brought[0]
    values = [payload for _, _, payload in brought]
    if kind == "broadcast":
        return values[root] if root < len(values) else values[0]
    if kind == "all_gather":
        return tuple(values)
    return math.nan if any(math.isnan(v) for v in values) else max(values)


class _Ticking(ast.NodeTransformer):
    """Counts the rounds of ``while`` loops, so that a program that was cut down cannot run for ever."""

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.parse("_tick()").body[0])
        return node


class _SetsAsFlags(ast.NodeTransformer):
    """Tests for a set of ranks that the file does not tell: ``rank < 2``, ``rank in (0, 1)``, ``rank % 2 == 0``."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        text = ast.unparse(node)
        return ast.Name("_set", ast.Load()) if text.endswith((" < 2", " in (0, 1)", " % 2 == 0")) else node
