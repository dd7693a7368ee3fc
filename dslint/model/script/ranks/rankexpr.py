"""Which ranks an expression lets through."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from dslint.model.script.behind import is_flag, question, tests_of_change
from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import is_none, last_name
from dslint.model.script.names import Names
from dslint.model.script.ranks.rankset import (
    ANY,
    DISTRIBUTED,
    FLIPPED,
    MAIN,
    SIGNS,
    SINGLE,
    SOME,
    Branches,
    Ranks,
    by_rank,
    by_size,
    number_of,
)
from dslint.model.script.ranks.rankvalues import RankValues
from dslint.model.script.ranks.rankwords import MAIN_NAMES, WORLD_CALLS

_DISTRIBUTED_NAMES = frozenset(
    {
        *(
            "is_initialized",
            "is_dist_initialized",
            "is_dist_avail_and_initialized",
            "is_distributed",
            "is_dist",
            "use_ddp",
        ),
        *(
            "distributed",
            "is_available",
            "use_distributed",
            "is_distributed_mode",
            "is_parallel",
            "is_ddp",
            "multiprocessing_distributed",
        ),
    }
)
_SIZES = frozenset({"world_size", "num_processes"})
_MAX_ALIASES = 4


class RankExpressions:
    """Reads tests of one module."""

    def __init__(self, names: Names, values: RankValues) -> None:
        self._names = names
        self._values = values

    def branches(self, test: cst.BaseExpression, depth: int = 0) -> Branches:
        """The ranks that a test sends into its true and into its false branch."""
        if depth > _MAX_ALIASES:
            return ANY
        if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
            yes, no = self.branches(test.expression, depth)
            return no, yes
        if type(test) is cst.BooleanOperation:
            left, right = self.branches(test.left, depth), self.branches(test.right, depth)
            if type(test.operator) is cst.And:
                return left[0] & right[0], left[1] | right[1]
            return left[0] | right[0], left[1] & right[1]
        if type(test) is cst.Comparison:
            return self._comparison(test)
        if type(test) is cst.NamedExpr:
            return self.branches(test.value, depth)
        if isinstance(test, cst.IfExp):
            return self._behind(test, depth)
        return self._truth(test, depth)

    def _behind(self, test: cst.BaseExpression, depth: int) -> Branches:
        asked, holds = question(self._names, test)
        if asked is test:
            return ANY
        yes, no = self.branches(asked, depth + 1)
        return (yes, no) if holds else (no, yes)

    def _truth(self, node: cst.BaseExpression, depth: int) -> Branches:
        """A test that is a value: ``is_main``, ``args.should_save``, ``trainer.is_world_process_zero()``, ``rank``."""
        called = node.func if type(node) is cst.Call else node
        name = last_name(called)
        is_main = name.lstrip("_") in MAIN_NAMES or self._names.is_own(called, self._names.own.guards)
        if is_main and not (type(node) is cst.Call and _asks_for_group(node)):
            return ANY if self._values.is_told(node) else MAIN
        if name == "should_save" and type(called) is cst.Attribute:
            # ``state.should_save`` and ``control.should_save`` are the same on every rank.
            return MAIN if last_name(called.value).endswith("args") else ANY
        if name in _DISTRIBUTED_NAMES:
            return DISTRIBUTED
        if self._values.is_rank(node):
            return Ranks.OTHERS, Ranks.MAIN
        if type(node) is cst.Call:
            if name == "bool" and len(node.args) == 1:
                return self.branches(node.args[0].value, depth + 1)
            function = self._names.local_function(node)
            return self._returned(function, depth) if function is not None else ANY
        return self._flag(node, depth)

    def _flag(self, node: cst.BaseExpression, depth: int) -> Branches:
        """A variable or attribute: what it was assigned, or what the property of that name returns."""
        found: list[Binding] = []
        if type(node) is cst.Name:
            found = self._names.bindings(node.value, node)
        elif type(node) is cst.Attribute:
            found = self._names.attribute_bindings(node)
            function = self._names.function_named(node) if not found else None
            if function is not None and any(last_name(d.decorator).endswith("property") for d in function.decorators):
                return self._returned(function, depth)
        tests = [b for b in found if not is_flag(b.value)]
        if found and not tests:
            behind = self._behind(node, depth)
            if behind is not ANY or len(found) != 2 or type(node) is not cst.Name:
                return behind
            return self._turned(found[0], found[1], node)
        if len(tests) != 1 or tests[0].kind != "assign" or tests[0].value is None:
            return ANY
        # ``master = rank == 0`` in a distributed run, ``master = True`` before it or otherwise.
        flags = (b for b in found if b is not tests[0])
        if not all(b.kind == "assign" and self._yields(b, tests[0]) for b in flags):
            return ANY
        return self.branches(tests[0].value, depth + 1)

    def _turned(self, first: Binding, second: Binding, use: cst.Name) -> Branches:
        """``serves = True``; ``if rank > 0: serves = False``: the tests around the second say for which ranks."""
        tests = tests_of_change(self._names, first, second, use)
        sides = [self.branches(test, 1) for test in tests]
        if not sides or not all(yes.is_partial or no is Ranks.NONE for yes, no in sides):
            return ANY
        ranks = Ranks.ALL
        for yes, _ in sides:
            ranks = ranks & yes
        rest = {Ranks.MAIN: Ranks.OTHERS, Ranks.OTHERS: Ranks.MAIN}.get(ranks)
        if rest is None:
            return ANY
        return (ranks, rest) if last_name(second.value) == "True" else (rest, ranks)

    def _yields(self, flag: Binding, test: Binding) -> bool:
        """A constant that an assignment after it replaces, or that stands in the other arm of an ``if``."""
        tree = self._names.tree
        if tree.position(flag.node) < tree.position(test.node):
            return True
        other = tree.enclosing(flag.node, cst.Else)
        choice = tree.parent(other) if other is not None else None
        return choice is not None and tree.contains(choice, test.node)

    def _returned(self, function: cst.FunctionDef, depth: int) -> Branches:
        """What a function that only returns a test answers; ``if not initialized: return True`` may come first."""
        body = function.body.body
        for statement in body[:-1]:
            if type(statement) is cst.If:
                if Ranks.NONE not in self.branches(statement.test, depth + 1) or not _only_returns_flag(statement):
                    return ANY
            elif not _is_docstring(statement):
                return ANY
        last: cst.CSTNode | None = body[-1] if body else None
        if type(last) is cst.SimpleStatementLine:
            last = last.body[-1] if len(last.body) == 1 else None
        value = last.value if type(last) is cst.Return else None
        return self.branches(value, depth + 1) if value is not None else ANY

    def _comparison(self, node: cst.Comparison) -> Branches:
        if len(node.comparisons) != 1:
            return ANY
        left, operator, right = node.left, node.comparisons[0].operator, node.comparisons[0].comparator
        if isinstance(operator, cst.In | cst.NotIn):
            result = self._membership(left, right)
            return result if type(operator) is cst.In else (result[1], result[0])
        if is_none(right) and self._values.is_rank(left):
            return SINGLE if isinstance(operator, cst.Is | cst.Equal) else DISTRIBUTED
        number, subject, flipped = number_of(right), left, False
        if number is None:
            number, subject, flipped = number_of(left), right, True
        if number is None:
            if SIGNS.get(type(operator)) in ("==", "!=") and self._values.is_last(left, right):
                return SOME if isinstance(operator, cst.Equal | cst.Is) else (SOME[1], SOME[0])
            return self._flag_comparison(left, operator, right)
        sign = SIGNS.get(type(operator), "")
        sign = FLIPPED.get(sign, sign) if flipped else sign
        if self._values.is_local_rank(subject):
            return by_rank(sign, number) if sign in ("==", "!=") and number == 0 else ANY
        if self._values.is_rank(subject):
            return by_rank(sign, number)
        if last_name(subject).lower() in _SIZES or (
            isinstance(subject, cst.Call) and self._names.called(subject) in WORLD_CALLS and not subject.args
        ):
            return by_size(sign, number)
        return ANY

    def _flag_comparison(
        self, left: cst.BaseExpression, operator: cst.BaseCompOp, right: cst.BaseExpression
    ) -> Branches:
        """``is_main is True``, ``is_main == False``."""
        if isinstance(right, cst.Name) and right.value in ("True", "False"):
            yes, no = self.branches(left, 1)
            positive = isinstance(operator, cst.Is | cst.Equal) == (right.value == "True")
            return (yes, no) if positive else (no, yes)
        return ANY

    def _membership(self, left: cst.BaseExpression, right: cst.BaseExpression) -> Branches:
        if not (isinstance(right, cst.Tuple | cst.List | cst.Set) and self._values.is_rank(left)):
            return ANY
        numbers = {number_of(e.value) for e in right.elements}
        if 0 in numbers or None in numbers:
            return MAIN if numbers <= {-1, 0} else ANY
        return SOME if all(n is not None and n > 0 for n in numbers) else ANY


def _asks_for_group(call: cst.Call) -> bool:
    """``is_master(group)`` is about a subgroup, ``is_master(args)`` about the job."""
    return any(last_name(a.value) not in ("args", "opt", "cfg", "config") for a in call.args)


def _is_docstring(statement: cst.CSTNode) -> bool:
    small = statement.body if type(statement) is cst.SimpleStatementLine else ()
    return len(small) == 1 and type(small[0]) is cst.Expr and type(small[0].value) is cst.SimpleString


def _only_returns_flag(statement: cst.If) -> bool:
    """``if ...: return True`` without an ``else``."""
    inner: Sequence[cst.CSTNode] = statement.body.body
    if statement.orelse is not None or len(inner) != 1:
        return False
    only = inner[0].body[0] if isinstance(inner[0], cst.SimpleStatementLine) else inner[0]
    return isinstance(only, cst.Return) and is_flag(only.value)
