"""Divergence by data: one rank skips a step or leaves a loop for a reason of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

import libcst as cst

from dslint.model.script.collective.collectives import Collective
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.precheck import skips
from dslint.model.script.ranks.guards import Guards
from dslint.model.script.ranks.rankset import Ranks
from dslint.model.script.traces.compare import compare
from dslint.model.script.traces.elements import Op
from dslint.model.script.traces.ranks import RankTruth
from dslint.model.script.traces.record import Recorder
from dslint.model.script.traces.variance import Variant
from dslint.model.script.tree import Tree

if TYPE_CHECKING:
    from dslint.model.script.traces.divergence import Divergences

# Models whose backward exchanges gradients.
_EXCHANGING = frozenset({"ddp", "fsdp", "prepared_model", "prepared"})


@dataclass(frozen=True, slots=True)
class DataDivergence:
    """A test that one rank passes alone, and the operation ``op`` that the ranks then do not share.

    ``skips``: the rank for which the test is true is the one without ``op``.
    """

    node: cst.CSTNode
    op: Op
    skips: bool
    variant: Variant | None = None


class _DataSide:
    """One of two ranks that differ in one test."""

    told = 0

    def __init__(
        self,
        truth: RankTruth,
        test: cst.BaseExpression | None = None,
        answer: bool = False,
        rank: int | None = None,
    ) -> None:
        self._truth = truth
        self._rank = rank
        self._test = test
        self._answer = answer

    def decide(self, test: cst.BaseExpression) -> bool | None:
        if test is self._test:
            return self._answer
        if self._rank is not None:
            return self._truth(test, self._rank)
        # What the rank decides is not the point here: only what is the same on all of them.
        answers = {self._truth(test, rank) for rank in (0, 1)}
        return answers.pop() if len(answers) == 1 else None

    def is_split(self, test: cst.BaseExpression) -> bool:
        return test is self._test

    def equals(self, _subject: cst.BaseExpression, _number: int) -> bool | None:
        return None

    def is_rank(self, _node: cst.BaseExpression) -> bool:
        return False

    def runs(self, _function: cst.FunctionDef) -> bool | None:
        return None


class DataDivergences:
    """Answers for one module. ``syntax`` is its cheap syntax tree, where the names in it are all that there are."""

    def __init__(
        self,
        tree: Tree,
        names: Names,
        guards: Guards,
        objects: Objects,
        divergences: Divergences,
        *,
        is_sharded: bool,
        syntax: ast.Module | None = None,
    ) -> None:
        self._syntax = syntax
        self._tree = tree
        self._names = names
        self._guards = guards
        self._objects = objects
        self._variances = divergences.variances
        self._is_sharded = is_sharded
        self._collectives = divergences.collectives
        self._ground = divergences.ground
        self._truth = divergences.truths[is_sharded]
        self._symbols = divergences.symbols
        self._calls: dict[int, Collective | None] = {}
        self._has_exchange: bool | None = None

    def tests(self) -> Iterator[DataDivergence]:
        """Tests of this rank's own data that decide over a collective, in source order."""
        for node in self._deciding():
            variant = self._variances.test(node.test)
            if variant is not None and self._guards.guard(node) is None:
                yield from self._of_test(node, variant)

    def _deciding(self) -> Iterator[cst.If | cst.While]:
        """The tests of the module, without those that the cheap look has seen to decide over nothing that waits."""
        tests = [n for n in self._tree.some(cst.If, cst.While) if isinstance(n, cst.If | cst.While)]
        seen = skips(self._syntax) if self._syntax is not None else ()
        return compress(tests, seen) if len(seen) == len(tests) else iter(tests)

    def _of_test(self, node: cst.If | cst.While, variant: Variant) -> Iterator[DataDivergence]:
        ranks: tuple[int, int] | tuple[None, None] = (None, None)
        guard = self._guards.guard(variant.source) if variant.is_lone else None
        if guard is not None and guard.ranks in (Ranks.MAIN, Ranks.OTHERS):
            ranks = (0, 1) if guard.ranks is Ranks.MAIN else (1, 0)  # who sets the value is one of the two
        one = self._recorder(_DataSide(self._truth, node.test, True, rank=ranks[0]))
        other = self._recorder(_DataSide(self._truth, node.test, False, rank=ranks[1]))
        anyway: set[int] = set()  # what these two ranks do not share for another reason
        if ranks[0] is not None:
            plain = (self._recorder(_DataSide(self._truth, rank=rank)) for rank in ranks)
            anyway = {id(found.op.call) for found in self._compared(node, node.test, *plain)}
        for found in self._compared(node, node.test, one, other):
            if id(found.op.call) not in anyway:
                yield DataDivergence(found.node, found.op, found.skips, variant)
                break

    def _compared(
        self, node: cst.CSTNode, cause: cst.CSTNode, one: Recorder, other: Recorder | None = None
    ) -> Iterator[DataDivergence]:
        scope = self._tree.function(node) or self._tree.module
        other = other or self._recorder(_DataSide(self._truth))
        for mismatch in compare(one.scope(scope), other.scope(scope)):
            yield DataDivergence(cause, mismatch.op, skips=mismatch.side == 1)

    def _recorder(self, side: _DataSide) -> Recorder:
        return Recorder(self._ground, self._collective, side, self._symbols)

    def _collective(self, call: cst.Call) -> Collective | None:
        if id(call) not in self._calls:
            found = self._collectives.of(call) or self._backward(call)
            keep = found is not None and (self._is_sharded or not found.needs_stage3)
            self._calls[id(call)] = found if keep else None
        return self._calls[id(call)]

    def _backward(self, call: cst.Call) -> Collective | None:
        """``loss.backward()`` and ``accelerator.backward(loss)`` where a model is trained that exchanges gradients."""
        if type(call.func) is not cst.Attribute or call.func.attr.value != "backward":
            return None
        if self._objects.kind(call.func.value) == "accelerator":
            return Collective("backward", "accelerate")
        return Collective("backward", "torch") if not call.args and self._exchanges() else None

    def _exchanges(self) -> bool:
        """The file calls a model that exchanges gradients: what it trains is that."""
        if self._has_exchange is None:
            called = (n.func for n in self._tree.every(cst.Call))
            self._has_exchange = any(
                isinstance(f, cst.Name | cst.Attribute) and self._objects.called(f) in _EXCHANGING for f in called
            )
        return self._has_exchange
