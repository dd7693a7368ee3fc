"""Rank guards: the tests, early exits and decorators that let only some ranks reach a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import libcst as cst

from dslint.model.script.collective.vocabulary import MAIN_DECORATORS, OTHER_DECORATORS
from dslint.model.script.dotted import dotted, is_main_test, last_name
from dslint.model.script.names import Names
from dslint.model.script.ranks.rankexpr import RankExpressions
from dslint.model.script.ranks.rankset import Branches, Ranks, by_rank, number_of
from dslint.model.script.ranks.rankvalues import RankValues
from dslint.model.script.tree import Tree

GROUP_MAKERS = frozenset({"init_process_group", "init_distributed"})
_Branching = cst.If | cst.IfExp | cst.While | cst.BooleanOperation
_BRANCHING = frozenset({cst.If, cst.IfExp, cst.While, cst.BooleanOperation})
_Block = cst.IndentedBlock | cst.Module
_EXIT_CALLS = frozenset({"sys.exit", "exit", "quit", "os._exit"})
# Ends the process as an exception does that nobody catches.
_ABORT = "os.abort"


@dataclass(frozen=True, slots=True)
class Guard:
    """Why only some ranks reach a node.

    ``ranks`` is ``MAIN``, ``OTHERS`` or ``SOME``. ``kind``: ``test`` (inside a branch of ``owner``), ``exit`` (after
    ``owner`` sends the other ranks away), ``decorator``. ``test`` is the expression or decorator that decides.
    ``is_plain``: the test asks for the rank and nothing else, so that without it every rank would come here.
    """

    ranks: Ranks
    kind: str
    test: cst.CSTNode
    owner: cst.CSTNode
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on the way to a node, with the ranks that pass it."""

    ranks: Ranks
    kind: str
    test: cst.CSTNode
    owner: cst.CSTNode


class Guards:
    """Answers which ranks reach a node of one module."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self.rank_values = RankValues(names)
        self.ranks_of = RankExpressions(names, self.rank_values)
        self._branches: dict[int, Branches] = {}
        self._exits: dict[int, list[tuple[int, Condition]]] = {}
        self._group_makers: dict[int, list[int]] = {}
        self._wrappers: dict[int, Ranks | None] = {}

    def guard(self, node: cst.CSTNode) -> Guard | None:
        """The innermost guard of a node within its function; ``None`` when every rank may come."""
        conditions = list(self.conditions(node))
        reached = Ranks.ALL
        for condition in conditions:
            reached = reached & condition.ranks
        if not reached.is_partial:
            return None
        first = next(c for c in conditions if c.ranks is reached)
        return Guard(reached, first.kind, first.test, first.owner, self._is_plain(first.test))

    def is_conditional(self, node: cst.CSTNode) -> bool:
        """Something else than "is this run distributed" decides whether a node runs."""
        return any(c.ranks is Ranks.ALL and not self._asks_distributed(c) for c in self.conditions(node))

    def conditions(self, node: cst.CSTNode) -> Iterator[Condition]:
        """Every condition between a node and its function, the innermost first."""
        inner = node
        for outer in self._tree.parents(node):
            kind = type(outer)
            if kind in _BRANCHING:
                condition = self._branch(cast("_Branching", outer), inner)
                if condition is not None:
                    yield condition
            elif kind is cst.IndentedBlock or kind is cst.Module:
                yield from self._earlier_exits(cast("_Block", outer), inner)
            elif type(outer) is cst.MatchCase:
                yield from self._case(outer, inner)
            elif type(outer) is cst.FunctionDef:
                yield from self._decorators(outer)
                return
            elif kind is cst.Lambda or kind is cst.ClassDef:
                return
            inner = outer

    def branches(self, test: cst.BaseExpression) -> Branches:
        """The ranks for which a test is true and false."""
        found = self._branches.get(id(test))
        if found is None:
            found = self._branches[id(test)] = self.ranks_of.branches(test)
        return found

    def _branch(self, outer: _Branching, inner: cst.CSTNode) -> Condition | None:
        if isinstance(outer, cst.BooleanOperation):
            if inner is not outer.right:
                return None
            yes, no = self.branches(outer.left)
            return Condition(yes if isinstance(outer.operator, cst.And) else no, "test", outer.left, outer)
        if inner is outer.test or is_main_test(outer.test):
            return None
        yes, no = self.branches(outer.test)
        if inner is outer.body:
            return Condition(yes, "test", outer.test, outer)
        # The ``else`` of a loop runs on every rank that did not break.
        return None if type(outer) is cst.While else Condition(no, "test", outer.test, outer)

    def _case(self, case: cst.MatchCase, inner: cst.CSTNode) -> Iterator[Condition]:
        """``match rank: case 0:``; what a later case catches depends on the earlier ones."""
        match, pattern = self._tree.parent(case), case.pattern
        if not (type(match) is cst.Match and type(pattern) is cst.MatchValue and inner is case.body):
            return
        number = number_of(pattern.value)
        if number is not None and self.rank_values.is_rank(match.subject):
            yield Condition(by_rank("==", number)[0], "test", match.subject, match)

    def _earlier_exits(self, block: _Block, inner: cst.CSTNode) -> Iterator[Condition]:
        exits = self._exits.get(id(block))
        if exits is None:
            exits = self._exits[id(block)] = list(self._exits_of(block.body))
        at = self._tree.position(inner)
        for position, condition in reversed(exits):
            if position < at and not self._group_made_between(block, position, at):
                yield condition

    def _group_made_between(self, block: cst.CSTNode, start: int, end: int) -> bool:
        """The ranks that went on have made their own process group: the others are no part of it."""
        if GROUP_MAKERS.isdisjoint(self._names.words):
            return False
        made = self._group_makers.get(id(block))
        if made is None:
            found = self._tree.own(block, cst.Call)
            made = [self._tree.position(n) for n in found if self._names.called(n) in GROUP_MAKERS]
            self._group_makers[id(block)] = made
        return any(start < position < end for position in made)

    def _exits_of(self, statements: Sequence[cst.CSTNode]) -> Iterator[tuple[int, Condition]]:
        for statement in statements:
            if type(statement) is not cst.If:
                continue
            yes, no = self.branches(statement.test)
            ending = self._tree.position(statement)
            if leaves(statement.body):
                yield ending, Condition(no, "exit", statement.test, statement)
            if type(statement.orelse) is cst.Else and leaves(statement.orelse.body):
                yield ending, Condition(yes, "exit", statement.test, statement)

    def _decorators(self, function: cst.FunctionDef) -> Iterator[Condition]:
        for decorator in function.decorators:
            expression = decorator.decorator
            called = expression.func if type(expression) is cst.Call else expression
            name = last_name(called)
            if name in MAIN_DECORATORS or self._names.is_own(called, self._names.own.guards):
                yield Condition(Ranks.MAIN, "decorator", decorator, function)
            elif name in OTHER_DECORATORS:
                yield Condition(_chosen(expression), "decorator", decorator, function)
            else:
                ranks = self._wrapped(expression)
                if ranks is not None:
                    yield Condition(ranks, "decorator", decorator, function)

    def _wrapped(self, decorator: cst.BaseExpression) -> Ranks | None:
        """The ranks on which a decorator of this file calls the function that it wraps."""
        made = self._names.function_named(decorator)
        if made is None or len(made.params.params) != 1:
            return None
        if id(made) not in self._wrappers:
            self._wrappers[id(made)] = None  # a decorator that decorates itself lets everybody in
            wrapped = made.params.params[0].name.value
            for node in self._tree.descendants(made.body):
                if isinstance(node, cst.Call) and self._names.called(node) == wrapped:
                    guard = self.guard(node)
                    self._wrappers[id(made)] = guard.ranks if guard is not None else None
        return self._wrappers[id(made)]

    def let_in(self, function: cst.FunctionDef) -> Ranks | None:
        """The ranks that a decorator lets into a function; ``None`` without such a decorator."""
        return next((c.ranks for c in self._decorators(function) if c.ranks.is_partial), None)

    def _is_plain(self, test: cst.CSTNode) -> bool:
        if isinstance(test, cst.Name | cst.Attribute):
            test = self._names.single_value(test) or test
        return not isinstance(test, cst.Decorator | cst.BooleanOperation)

    def _asks_distributed(self, condition: Condition) -> bool:
        test = condition.test
        if not isinstance(test, cst.BaseExpression):
            return False
        return Ranks.NONE in self.branches(test)


def _chosen(decorator: cst.BaseExpression) -> Ranks:
    """The rank that ``@accelerator.on_process(process_index=1)`` or ``@accelerator.on_last_process`` lets in."""
    if type(decorator) is not cst.Call:
        return Ranks.SOME
    indices = (a.value for a in decorator.args if a.keyword is not None and a.keyword.value.endswith("process_index"))
    number = next((number_of(i) for i in indices), None)
    return by_rank("==", number)[0] if number is not None else Ranks.ALL


def leaves(body: cst.BaseSuite) -> bool:
    """The block always ends by leaving the function or the loop iteration."""
    last = body.body[-1] if body.body else None
    if type(last) is cst.SimpleStatementLine:
        last = last.body[-1] if last.body else None
    if isinstance(last, cst.Return | cst.Continue | cst.Break):
        return True
    if type(last) is cst.Raise:  # any other exception ends the job, and nobody waits for long
        raised = last.exc.func if type(last.exc) is cst.Call else last.exc
        return last_name(raised) == "SystemExit"
    return type(last) is cst.Expr and is_exit(last.value)


def is_exit(node: cst.BaseExpression, names: Names | None = None) -> bool:
    """``sys.exit(...)`` and the like, with ``names`` under whatever name it is imported."""
    return isinstance(node, cst.Call) and _name(node, names) in _EXIT_CALLS


def is_abort(node: cst.BaseExpression, names: Names) -> bool:
    """``os.abort()``."""
    return isinstance(node, cst.Call) and _name(node, names) == _ABORT


def _name(call: cst.Call, names: Names | None) -> str | None:
    return (names.qualified(call.func) if names is not None else None) or dotted(call.func)
