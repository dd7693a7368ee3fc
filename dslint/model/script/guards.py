"""Rank guards: the tests, early exits and decorators that let only some ranks reach a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.names import Names, dotted, last_name
from dslint.model.script.rankexpr import Branches, RankExpressions, Ranks
from dslint.model.script.tree import Tree
from dslint.model.script.vocabulary import MAIN_DECORATORS

_EXIT_CALLS = frozenset({"sys.exit", "exit", "quit", "os._exit"})


@dataclass(frozen=True, slots=True)
class Guard:
    """Why only some ranks reach a node.

    ``ranks`` is ``MAIN`` or ``OTHERS``. ``kind``: ``test`` (inside a branch of ``owner``), ``exit`` (after ``owner``
    sends the other ranks away), ``decorator``. ``test`` is the expression or decorator that decides. ``is_plain``:
    the test asks for the rank and nothing else, so that without it every rank would come here.
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
        self.ranks_of = RankExpressions(names)
        self._branches: dict[int, Branches] = {}
        self._exits: dict[int, list[tuple[int, Condition]]] = {}

    def guard(self, node: cst.CSTNode) -> Guard | None:
        """The innermost guard of a node within its function; ``None`` when every rank may come."""
        conditions = list(self.conditions(node))
        reached = Ranks.ALL
        for condition in conditions:
            reached = reached & condition.ranks
        if reached not in (Ranks.MAIN, Ranks.OTHERS):
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
            if isinstance(outer, cst.If | cst.IfExp | cst.While | cst.BooleanOperation):
                condition = self._branch(outer, inner)
                if condition is not None:
                    yield condition
            elif isinstance(outer, cst.IndentedBlock | cst.Module):
                yield from self._earlier_exits(outer, inner)
            elif isinstance(outer, cst.FunctionDef):
                yield from self._decorators(outer)
                return
            elif isinstance(outer, cst.Lambda | cst.ClassDef):
                return
            inner = outer

    def branches(self, test: cst.BaseExpression) -> Branches:
        """The ranks for which a test is true and false."""
        found = self._branches.get(id(test))
        if found is None:
            found = self._branches[id(test)] = self.ranks_of.branches(test)
        return found

    def _branch(
        self, outer: cst.If | cst.IfExp | cst.While | cst.BooleanOperation, inner: cst.CSTNode
    ) -> Condition | None:
        if isinstance(outer, cst.BooleanOperation):
            if inner is not outer.right:
                return None
            yes, no = self.branches(outer.left)
            return Condition(yes if isinstance(outer.operator, cst.And) else no, "test", outer.left, outer)
        if inner is outer.test:
            return None
        yes, no = self.branches(outer.test)
        if inner is outer.body:
            return Condition(yes, "test", outer.test, outer)
        # The ``else`` of a loop runs on every rank that did not break.
        return None if isinstance(outer, cst.While) else Condition(no, "test", outer.test, outer)

    def _earlier_exits(self, block: cst.IndentedBlock | cst.Module, inner: cst.CSTNode) -> Iterator[Condition]:
        exits = self._exits.get(id(block))
        if exits is None:
            exits = self._exits[id(block)] = list(self._exits_of(block.body))
        at = self._tree.position(inner)
        for position, condition in reversed(exits):
            if position < at:
                yield condition

    def _exits_of(self, statements: Sequence[cst.CSTNode]) -> Iterator[tuple[int, Condition]]:
        for statement in statements:
            if not isinstance(statement, cst.If):
                continue
            yes, no = self.branches(statement.test)
            ending = self._tree.position(statement)
            if _leaves(statement.body):
                yield ending, Condition(no, "exit", statement.test, statement)
            if isinstance(statement.orelse, cst.Else) and _leaves(statement.orelse.body):
                yield ending, Condition(yes, "exit", statement.test, statement)

    def _decorators(self, function: cst.FunctionDef) -> Iterator[Condition]:
        for decorator in function.decorators:
            expression = decorator.decorator
            name = last_name(expression.func if isinstance(expression, cst.Call) else expression)
            if name in MAIN_DECORATORS:
                yield Condition(Ranks.MAIN, "decorator", decorator, function)

    def _is_plain(self, test: cst.CSTNode) -> bool:
        if isinstance(test, cst.Name | cst.Attribute):
            test = self._names.single_value(test) or test
        return not isinstance(test, cst.Decorator | cst.BooleanOperation)

    def _asks_distributed(self, condition: Condition) -> bool:
        test = condition.test
        if not isinstance(test, cst.BaseExpression):
            return False
        return Ranks.NONE in self.branches(test)


def _leaves(body: cst.BaseSuite) -> bool:
    """The block always ends by leaving the function or the loop iteration."""
    last = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1] if last.body else None
    if isinstance(last, cst.Return | cst.Continue | cst.Break):
        return True
    return isinstance(last, cst.Expr) and isinstance(last.value, cst.Call) and dotted(last.value.func) in _EXIT_CALLS
