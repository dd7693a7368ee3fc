"""Where ranks part: the functions of a module in which a test tells them apart, what these call, and who calls them."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.ranks.guards import Guards
from dslint.model.script.traces.ground import Ground
from dslint.model.script.traces.ranks import RankTruth

# The nodes whose test may tell ranks apart.
_SPLITTING = (cst.If, cst.While, cst.IfExp, cst.BooleanOperation, cst.Match)


class Parting:
    """Answers for one module; the ranks are the same in every question."""

    def __init__(self, ground: Ground, guards: Guards, truth: RankTruth) -> None:
        self._tree = ground.tree
        self._names = ground.names
        self._helper = ground.helper
        self._guards = guards
        self._truth = truth
        self._reached: set[int] | None = None
        self._scopes: list[cst.CSTNode] | None = None

    def scopes(self, ranks: tuple[int, ...] | None = None) -> list[cst.CSTNode]:
        """The functions (and the module) in which some test tells the ranks apart, in source order.

        Without ``ranks`` those that were found before.
        """
        if self._scopes is None and ranks is not None:
            found: dict[int, cst.CSTNode] = {}
            for node in self._tree.some(*_SPLITTING, cst.FunctionDef):
                if self._splits(node, ranks):
                    scope = self._tree.function(node) or self._tree.module
                    found.setdefault(id(scope), scope)
                elif type(node) is cst.FunctionDef and node.decorators and self._guards.let_in(node) is not None:
                    found.setdefault(id(node), node)
            self._scopes = list(found.values())
        return self._scopes or []

    def reaches(self, call: cst.Call, ranks: tuple[int, ...]) -> bool:
        """Ranks go separate ways in the function around a call, or in one that runs it: the others need no look."""
        if self._reached is None:
            self._reached = self._reached_from(self.scopes(ranks))
        return id(self._tree.function(call) or self._tree.module) in self._reached

    def callers(self, scope: cst.CSTNode) -> list[cst.CSTNode]:
        """The functions of this file (or the module) that call a function; traces do not follow the call of a class."""
        calls = (call for call in self._names.callers.of(scope) if self._helper(call) is scope)
        return [self._tree.function(call) or self._tree.module for call in calls]

    def _reached_from(self, scopes: list[cst.CSTNode]) -> set[int]:
        """Functions, and what they call in this file."""
        calls: dict[int, list[cst.Call]] = {}
        for call in self._tree.every(cst.Call) if scopes else ():
            calls.setdefault(id(self._tree.function(call) or self._tree.module), []).append(call)
        found: set[int] = set()
        pending = list(scopes)
        while pending:
            scope = pending.pop()
            if id(scope) not in found:
                found.add(id(scope))
                pending += filter(None, map(self._helper, calls.get(id(scope), [])))
        return found

    def _splits(self, node: cst.CSTNode, ranks: tuple[int, ...]) -> bool:
        if type(node) is cst.Match:
            return self._guards.rank_values.is_rank(node.subject)
        if type(node) is cst.BooleanOperation:
            test: cst.BaseExpression = node.left
        elif isinstance(node, cst.If | cst.While | cst.IfExp):
            test = node.test
        else:
            return False
        return len({self._truth(test, rank) for rank in ranks}) > 1
