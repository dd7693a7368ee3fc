"""What decides whether a process comes to an event: tests with the side that leads there, and what has started it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from dslint.python.events import Alt, Call
from dslint.python.jobtests import asks_for_job
from dslint.python.queries.order import Before, deciding
from dslint.rules.runs import Happening, RunQuery


@dataclass(frozen=True, slots=True)
class Decided:
    """One way to an event: the tests on it by their side, and the calls that have started the process.

    A test that may only leave before the event has no side. `job` are the tests that ask whether there is a job.
    """

    sides: frozenset[tuple[Alt, int]]
    started: frozenset[int]
    job: frozenset[Alt]

    @property
    def asks_only_for_job(self) -> bool:
        """Return whether the program comes here whenever it runs on several processes."""
        return {test for test, _ in self.sides} <= self.job

    def beyond(self, other: Decided) -> frozenset[Alt] | None:
        """Return the tests that decide here and not on another way; `None` where no process takes both."""
        known = dict(other.sides)
        if self.started != other.started or any(known.get(test, side) != side for test, side in self.sides):
            return None
        return frozenset(test for test, _ in self.sides if test not in known)

    def is_on(self, other: Decided) -> bool:
        """Return whether the job that begins on another way comes here too, unless something else decides."""
        tests = self.beyond(other)
        return tests is not None and not tests & self.job


def ways_to(run: RunQuery, found: Happening, ignores: Callable[[Alt], bool] = lambda _: False) -> frozenset[Decided]:
    """Return what decides whether a process comes to an event, for each way; some tests may be passed over."""
    spawns = frozenset(id(other.event.node) for other in run.happenings("spawns"))
    return frozenset(_decided(way, spawns, ignores) for way in deciding(found.entry.tree, found.event))


def _decided(past: Before, spawns: frozenset[int], ignores: Callable[[Alt], bool]) -> Decided:
    below = {id(test): id(side) for test, side in pairwise(past.way) if isinstance(test, Alt)}
    tests = [test for test in past.tests if not ignores(test)]
    return Decided(
        frozenset((test, below.get(id(test), 0)) for test in tests),
        frozenset(id(node) for node in past.way if isinstance(node, Call) and id(node.node) in spawns),
        frozenset(test for test in tests if any(asks_for_job(node, test.test) for node in _asks(test))),
    )


def _asks(test: Alt) -> list[ast.AST]:
    """Return what a test asks: of `a and run()` what decides whether the last part runs."""
    return list(test.asks.values[:-1]) if isinstance(test.asks, ast.BoolOp) else [test.asks or test.node]
