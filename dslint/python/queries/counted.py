"""Tests that the number of a step or an epoch decides: `epoch < warmup`, `step % 4 == 0`, a parameter that got one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Seq
from dslint.python.machine import Machine
from dslint.python.queries.derived import Derived
from dslint.python.source import Module

_MAX_DEPTH = 6
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_COUNTS = frozenset({"range", "enumerate", "trange"})


class Counted:
    """What the code says about numbers of turns, in the modules and calls of one tree."""

    def __init__(self, m: Machine, tree: Seq) -> None:
        self._derived = Derived(m.program.modules(), [tree])

    def decides(self, module: Module, test: ast.expr, depth: int = 0) -> bool:
        """Return whether a test certainly changes while the loop around it goes on."""
        if depth > _MAX_DEPTH:
            return False
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.decides(module, test.operand, depth)
        if isinstance(test, ast.BoolOp):
            return all(self.decides(module, part, depth) for part in test.values)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _ORDERS):
            left, right = (self._is_count(module, side, depth) for side in (test.left, test.comparators[0]))
            return left != right
        if isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod):
            return self._is_count(module, test, depth)
        return isinstance(test, ast.Name) and self._all(module, test, depth, is_test=True)

    def _is_count(self, module: Module, node: ast.expr, depth: int) -> bool:
        """Return whether an expression is the number of a turn, perhaps with something added or as a remainder."""
        if isinstance(node, ast.BinOp):
            return self._is_count(module, node.left, depth)
        if not isinstance(node, ast.Name) or depth > _MAX_DEPTH:
            return False
        return self._is_target(module, node) or self._all(module, node, depth, is_test=False)

    def _all(self, module: Module, name: ast.Name, depth: int, *, is_test: bool) -> bool:
        """Return whether all that a name may hold is such a test or number."""
        asked = self.decides if is_test else self._is_count
        pieces = list(self._derived.of_name(module, name))
        return bool(pieces) and all(
            isinstance(piece, ast.expr) and asked(home, piece, depth + 1) for home, piece in pieces
        )

    def _is_target(self, module: Module, name: ast.Name) -> bool:
        """Return whether a loop counts in a name, in the function around it."""
        scope = self._derived.scopes(module, name)[0]
        bound = list(_bound(scope, name.id))
        return any(bound) and False not in bound


def _bound(scope: ast.AST, name: str) -> Iterator[bool | None]:
    """Yield of all that binds a name whether it counts turns; `None` where it begins to count."""
    for node in ast.walk(scope):
        if isinstance(node, ast.For) and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.target)):
            function = node.iter.func if isinstance(node.iter, ast.Call) else None
            word = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            first = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
            yield word in _COUNTS and isinstance(first, ast.Name) and first.id == name
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            yield isinstance(node.op, ast.Add)
        elif isinstance(node, ast.Assign) and any(isinstance(n, ast.Name) and n.id == name for n in node.targets):
            yield None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int) else False
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            a.arg == name for a in (*node.args.args, *node.args.kwonlyargs)
        ):
            yield False
