"""Divergence by data: one rank skips a step, leaves a loop or catches an exception for a reason of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

import libcst as cst

from dslint.model.script.collective.collectives import Collective
from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.precheck import skips
from dslint.model.script.ranks.guards import Guards, leaves
from dslint.model.script.ranks.rankset import Ranks
from dslint.model.script.traces.compare import compare
from dslint.model.script.traces.elements import Op
from dslint.model.script.traces.ranks import RankTruth
from dslint.model.script.traces.record import Recorder
from dslint.model.script.traces.variance import Variant
from dslint.model.script.tree import Tree

if TYPE_CHECKING:
    from dslint.model.script.traces.divergence import Divergences

Handler = cst.ExceptHandler | cst.ExceptStarHandler
# Models whose backward exchanges gradients.
_EXCHANGING = frozenset({"ddp", "fsdp", "prepared_model", "prepared"})
_STEPS = frozenset({"backward", "step", "train_batch", "forward", "clip_grad_norm_"})
# What a handler must catch to catch what happens on one rank: out of memory, a broken sample, a NaN check.
_CAUGHT = frozenset(
    {
        *("Exception", "BaseException", "RuntimeError", "OutOfMemoryError", "ValueError", "FloatingPointError"),
        *("AssertionError", "IndexError", "KeyError", "StopIteration", "OSError", "IOError", "TypeError"),
    }
)


@dataclass(frozen=True, slots=True)
class DataDivergence:
    """A test or a handler that one rank takes alone, and the operation ``op`` that the ranks then do not share.

    ``skips``: the rank that takes it (the test is true, the exception came) is the one without ``op``.
    """

    node: cst.CSTNode
    op: Op
    skips: bool
    variant: Variant | None = None


class _DataSide:
    """One of two ranks that differ in one test, or in one exception."""

    told = 0

    def __init__(
        self,
        truth: RankTruth,
        test: cst.BaseExpression | None = None,
        answer: bool = False,
        node: cst.CSTNode | None = None,
        handler: Handler | None = None,
        rank: int | None = None,
    ) -> None:
        self._truth = truth
        self._rank = rank
        self._test = test
        self._answer = answer
        self._node = node
        self._handler = handler

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

    def handler(self, node: cst.Try | cst.TryStar) -> Handler | None:
        return self._handler if node is self._node else None


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

    def handlers(self) -> Iterator[DataDivergence]:
        """Handlers that let one rank go on without the collectives of the body, in source order."""
        for node, handler in self.catching():
            steps = self._steps(node.body)
            if not steps or self._must_raise(node):
                continue
            one = self._recorder(_DataSide(self._truth, node=node, handler=handler))
            for found in self._compared(node, handler, one):
                if found.skips and any(found.op.call is step for step in steps):
                    yield found
                    break

    def catching(self) -> Iterator[tuple[cst.Try | cst.TryStar, Handler]]:
        """Every ``try`` that all ranks come to, with its first handler for what may happen on one of them."""
        for node in self._tree.some(cst.Try, cst.TryStar):
            if isinstance(node, cst.Try | cst.TryStar) and self._guards.guard(node) is None:
                handler = next((h for h in node.handlers if self._catches(h)), None)
                if handler is not None:
                    yield node, handler

    def _catches(self, handler: Handler) -> bool:
        """The handler catches what may happen on one rank; an exception of the file counts as what it derives from."""
        kinds = [handler.type] if handler.type is not None else []
        if type(handler.type) is cst.Tuple:
            kinds = [e.value for e in handler.type.elements]
        names = {last_name(k) for k in kinds}
        if names == {"StopIteration"} and leaves(handler.body):
            return False  # the end of the loader, which comes on all ranks: ``except StopIteration: break``
        names |= {base.rpartition(".")[2] for name in names for base in self._names.class_bases(name)}
        return handler.type is None or not names.isdisjoint(_CAUGHT)

    def _must_raise(self, node: cst.Try | cst.TryStar) -> bool:
        """A body that comes to its end is the failure, in ``else``, at the end of the body, or behind: a test."""
        arms = [node.body.body, node.orelse.body.body if node.orelse is not None else ()]
        block = self._tree.parent(node)
        if isinstance(block, cst.IndentedBlock | cst.Module):
            later = [s for s in block.body if self._tree.position(s) > self._tree.position(node)]
            arms.append(later[:1])
        return any(bool(arm) and _fails(arm[-1]) for arm in arms)

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

    def _steps(self, body: cst.BaseSuite) -> list[cst.Call]:
        """The calls of a body that train: each works on data of its own and may fail for one rank.

        In a loop they may do so through a function of the file: elsewhere that may be the whole of the training.
        """
        calls = self._tree.own(body, cst.Call)
        is_turn = bool(self._tree.loops(body))
        return [c for c in calls if self._is_step(c) or (is_turn and self._holds_step(self._ground.helper(c)))]

    def _is_step(self, call: cst.Call) -> bool:
        collective = self._collective(call)
        return collective is not None and collective.key in _STEPS

    def _holds_step(self, function: cst.FunctionDef | None) -> bool:
        if function is None:
            return False
        return any(map(self._is_step, self._tree.own(function.body, cst.Call)))

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


def _fails(statement: cst.CSTNode) -> bool:
    """``raise AssertionError("...")``, ``assert False``, ``pytest.fail()``: the exception is expected on every rank."""
    inner = statement.body[-1] if type(statement) is cst.SimpleStatementLine else statement
    if type(inner) is cst.Assert:
        return isinstance(inner.test, cst.Integer | cst.Name) and inner.test.value in ("0", "False")
    called = inner.value if type(inner) is cst.Expr else None
    return type(inner) is cst.Raise or (type(called) is cst.Call and last_name(called.func) == "fail")
