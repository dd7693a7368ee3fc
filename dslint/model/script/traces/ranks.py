"""What a test says on one given rank, and what that rank knows when its trace is recorded."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from dslint.model.script.names import Names
from dslint.model.script.ranks.guards import Guards
from dslint.model.script.ranks.rankset import FLIPPED, SIGNS, Ranks, number_of
from dslint.model.script.tree import Tree
from dslint.model.script.zero.stagetests import StageTests

# Stands for the last rank of the job, whose number no file states.
LAST = 1 << 30
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": int.__eq__,
    "!=": int.__ne__,
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}
# Ranks that a file tells apart by number beyond these are left out: two of a kind behave alike.
_MOST = 6


class RankTruth:
    """Evaluates tests of one module for a given rank; ``None`` where the rank does not decide.

    ``stage``: the ZeRO stage, where it is known or supposed, decides over tests that ask for it.
    """

    def __init__(self, guards: Guards, names: Names, stage: int | None = None) -> None:
        self._guards = guards
        self._stage = stage
        self._stages = StageTests(names)
        self._values = guards.rank_values
        self._names = names
        self._known: dict[tuple[int, int], bool | None] = {}

    def __call__(self, test: cst.BaseExpression, rank: int) -> bool | None:
        """Whether the test is true on this rank of a distributed run."""
        key = id(test), rank
        if key not in self._known:
            self._known[key] = self._truth(test, rank)
        return self._known[key]

    def differs(self, test: cst.BaseExpression, one: int, other: int) -> bool:
        """The test decides, for at least one of two ranks, and not alike."""
        return self(test, one) is not self(test, other)

    def _truth(self, test: cst.BaseExpression, rank: int) -> bool | None:
        if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
            inner = self(test.expression, rank)
            return None if inner is None else not inner
        if type(test) is cst.BooleanOperation:
            sides = {self(test.left, rank), self(test.right, rank)}
            decisive = type(test.operator) is cst.Or
            if decisive in sides:
                return decisive
            return None if None in sides else not decisive
        if type(test) is cst.NamedExpr:
            return self(test.value, rank)
        if type(test) is cst.Comparison:
            found = self._comparison(test, rank)
            if found is not None:
                return found
        if self._stage is not None:
            outcome = self._stages.outcome(test)
            for stages, answer in zip(outcome or (), (True, False), strict=False):
                if self._stage not in stages:
                    return not answer
        return self._by_sets(test, rank)

    def _comparison(self, test: cst.Comparison, rank: int) -> bool | None:
        if len(test.comparisons) != 1:
            return None
        left, operator, right = test.left, test.comparisons[0].operator, test.comparisons[0].comparator
        if isinstance(operator, cst.In | cst.NotIn):
            inside = self._membership(left, right, rank)
            return inside if type(operator) is cst.In or inside is None else not inside
        sign = SIGNS.get(type(operator), "")
        if sign in ("==", "!=") and self._values.is_last(left, right):
            return (rank == LAST) is (sign == "==")
        if sign in ("==", "!=") and isinstance(right, cst.SimpleString | cst.Integer) and self._is_function(left):
            return sign == "!="
        number, subject = number_of(right), left
        if number is None:
            number, subject, sign = number_of(left), right, FLIPPED.get(sign, sign)
        # Negative numbers mean "not distributed"; a rank of a node counts as one of the job, as if there were one node.
        if number is None or number < 0 or not sign or not self._values.is_rank(subject):
            return None
        return _COMPARE[sign](rank, number)

    def _is_function(self, node: cst.BaseExpression) -> bool:
        """The name of a function, which is true and equal to no literal: ``evaluate`` where ``split`` was meant."""
        return type(node) is cst.Name and self._names.function_named(node) is not None

    def _membership(self, left: cst.BaseExpression, right: cst.BaseExpression, rank: int) -> bool | None:
        if not (isinstance(right, cst.Tuple | cst.List | cst.Set) and self._values.is_rank(left)):
            return None
        numbers = {number_of(e.value) for e in right.elements}
        return None if None in numbers else rank in numbers

    def _by_sets(self, test: cst.BaseExpression, rank: int) -> bool | None:
        """Names like ``is_main_process``, flags, functions, "is this run distributed"."""
        if self._is_function(test):
            return True
        yes, no = self._guards.branches(test)
        for ranks, answer in ((yes, True), (no, False)):
            if not _may_hold(ranks, rank):
                return not answer
        return None


def _may_hold(ranks: Ranks, rank: int) -> bool:
    if ranks is Ranks.MAIN:
        return rank == 0
    if ranks is Ranks.OTHERS or ranks is Ranks.SOME:
        return rank != 0
    return ranks is not Ranks.NONE


def ranks_of_interest(tree: Tree, guards: Guards) -> list[int]:
    """Rank 0, a rank that the file does not name, and those that it compares the rank with for equality."""
    found = {0}
    for node in tree.some(cst.Comparison, cst.MatchCase, cst.FunctionDef):
        if type(node) is cst.Comparison and len(node.comparisons) == 1:
            found |= _named(node, guards)
        elif type(node) is cst.MatchCase and type(node.pattern) is cst.MatchValue:
            number = number_of(node.pattern.value)
            found |= {number} if number is not None and 0 <= number < LAST else set()
        elif type(node) is cst.FunctionDef and node.decorators and guards.let_in(node) is Ranks.SOME:
            found.add(LAST)  # ``@accelerator.on_last_process``: one that is not rank 0
    numbers = sorted(n for n in found if n != LAST)[:_MOST]
    # A job that has rank 3 has ranks 1 and 2; whether it has one more than the file names is not known.
    unnamed = [n for n in range(1, max(numbers[-1], 2)) if n not in found]
    return [*numbers, *unnamed[:1], *([LAST] if LAST in found else [])]


def _named(node: cst.Comparison, guards: Guards) -> set[int]:
    left, operator, right = node.left, node.comparisons[0].operator, node.comparisons[0].comparator
    sign = SIGNS.get(type(operator), "")
    number, subject = number_of(right), left
    if number is None:
        number, subject, sign = number_of(left), right, FLIPPED.get(sign, sign)
    if number is not None and number > 0 and sign in ("==", "!=", ">", ">=") and guards.rank_values.is_rank(subject):
        return {number + (sign == ">")}
    if isinstance(operator, cst.In | cst.NotIn) and isinstance(right, cst.Tuple | cst.List | cst.Set):
        numbers = {number_of(e.value) for e in right.elements}
        if guards.rank_values.is_rank(left):
            return {n for n in numbers if n is not None and n > 0}
    if sign in ("==", "!=") and guards.rank_values.is_last(left, right):
        return {LAST}
    return set()


class RankSide:
    """What one rank knows about tests."""

    def __init__(self, truth: RankTruth, guards: Guards, ranks: list[int], rank: int) -> None:
        self._truth = truth
        self._guards = guards
        self._ranks = ranks
        self.rank = rank
        self.told = 0

    def decide(self, test: cst.BaseExpression) -> bool | None:
        """Whether the test is true on this rank."""
        self.told += self.is_split(test)
        return self._truth(test, self.rank)

    def is_split(self, test: cst.BaseExpression) -> bool:
        """It comes out differently on another rank."""
        mine = self._truth(test, self.rank)
        return any(self._truth(test, other) is not mine for other in self._ranks)

    def equals(self, subject: cst.BaseExpression, number: int) -> bool | None:
        """``match rank: case 0:``."""
        if not self._guards.rank_values.is_rank(subject):
            return None
        self.told += 1
        return number == self.rank

    def is_rank(self, node: cst.BaseExpression) -> bool:
        """The expression is the rank of the process."""
        return self._guards.rank_values.is_rank(node)

    def runs(self, function: cst.FunctionDef) -> bool | None:
        """``@rank_zero_only`` and the like."""
        let_in = self._guards.let_in(function)
        if let_in is None:
            return None
        self.told += 1
        return {Ranks.MAIN: self.rank == 0, Ranks.SOME: self.rank == LAST}.get(let_in, self.rank != 0)
