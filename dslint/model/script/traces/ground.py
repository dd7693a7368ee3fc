"""What the recorders of one module have in common."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from dslint.model.script.dotted import is_self
from dslint.model.script.names import Names
from dslint.model.script.traces.news import News
from dslint.model.script.traces.symbols import plain
from dslint.model.script.tree import Tree


class Ground:
    """What the recorders of all sides of a module walk on."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self.tree = tree
        self.names = names
        self._helpers: dict[int, cst.FunctionDef | None] = {}
        self._shared: dict[int, dict[str, frozenset[str]]] = {}

    def helper(self, call: cst.Call) -> cst.FunctionDef | None:
        """The function or method of this file that a call runs: every side comes to the same calls."""
        if id(call) not in self._helpers:
            self._helpers[id(call)] = self.names.local_function(call)
        return self._helpers[id(call)]

    def shared_tests(self, call: cst.Call, helper: cst.FunctionDef) -> frozenset[str]:
        """The texts of the tests of a called function of this file that ask the same where it is called.

        They ask for variables of the module alone, and for ``self`` where the call is ``self.helper(...)``.
        """
        found = self._shared.get(id(helper))
        if found is None:
            found = self._shared[id(helper)] = dict(self._shared_of(helper))
        is_own = isinstance(call.func, cst.Attribute) and is_self(call.func.value)
        return frozenset(text for text, used in found.items() if self._means_the_same(used, call, is_own))

    def _shared_of(self, helper: cst.FunctionDef) -> Iterator[tuple[str, frozenset[str]]]:
        for node in self.tree.own_nodes(helper.body):
            test = node.test if isinstance(node, cst.If | cst.While | cst.IfExp) else None
            tests = (node.left, node.right) if type(node) is cst.BooleanOperation else () if test is None else (test,)
            for one in tests:
                used = [n for n in self.tree.descendants(one) if type(n) is cst.Name and self.tree.is_variable(n)]
                if all(n.value == "self" or self._is_of_module(n) for n in used):
                    yield self._symbol(one).removeprefix("not "), frozenset(n.value for n in used)

    def _symbol(self, test: cst.BaseExpression) -> str:
        """What a trace calls the test, when nothing in it is known."""
        if type(test) is cst.BooleanOperation:
            word = "and" if type(test.operator) is cst.And else "or"
            return f"({self._symbol(test.left)} {word} {self._symbol(test.right)})"
        if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
            return f"not {self._symbol(test.expression)}"
        return plain(self.tree.text(test))

    def _is_of_module(self, name: cst.Name) -> bool:
        return all(self.names.scope(b.node) is self.tree.module for b in self.names.bindings(name.value, name))

    def _means_the_same(self, used: frozenset[str], call: cst.Call, is_own: bool) -> bool:
        found = {name: self.names.bindings(name, call) for name in used if name != "self"}
        known = all(self.names.scope(b.node) is self.tree.module for bound in found.values() for b in bound)
        return known and (is_own or "self" not in used)

    @cached_property
    def news(self) -> News:
        """Where something happens."""
        return News(self.tree)
