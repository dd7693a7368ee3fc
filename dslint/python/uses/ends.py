"""Which blocks end their function or program, and which tests never hold."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslint.python.names import Names

_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit", "pytest.skip"})
_NEVER = frozenset({"typing.TYPE_CHECKING", "typing_extensions.TYPE_CHECKING"})


def ends(body: list[ast.stmt]) -> bool:
    """Return whether nothing after a block runs when the block has run."""
    last = body[-1] if body else None
    if isinstance(last, ast.Raise | ast.Return | ast.Continue | ast.Break):
        return True
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in _EXITS
    if isinstance(last, ast.If):
        return bool(last.orelse) and ends(last.body) and ends(last.orelse)
    return False


def raises(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler always ends in an error: what it catches stops the program all the same."""
    last = handler.body[-1] if handler.body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in _EXITS
    return isinstance(last, ast.Raise)


def never_runs(test: ast.expr, names: Names) -> bool:
    """Return whether a test is false in every run: `TYPE_CHECKING`, `False`, `0`."""
    if isinstance(test, ast.Constant):
        return not test.value
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(never_runs(value, names) for value in test.values)
    return names.qualified(test) in _NEVER
