"""The code over which an expression decides: the sides of its test, also by a flag that it gives, and what is left."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from dslint.python.queries.bound import LOOPS, stores
from dslint.python.source import Module

_LEAVES = (ast.Continue, ast.Return, ast.Break, ast.Raise)


def sides_of(module: Module, asks: ast.expr) -> tuple[list[ast.AST], frozenset[str]]:
    """Return the code over which a comparison decides, that of `if` first, and the names of what it gives."""
    scope = module.function(asks) or module.tree
    node: ast.AST = asks
    while node in module.parents and not isinstance(node, ast.stmt):
        node = module.parents[node]
    direct = list(_sides(module, node)) if _holds(test_of(node), asks) else []
    flags: set[str] = set()
    if isinstance(node, ast.Assign | ast.AnnAssign):
        flags = {ast.unparse(target) for target, value in stores(node) if value is not None}
    elif isinstance(node, ast.If) and direct:
        set_here = (pair for statement in node.body for pair in stores(statement))
        flags = {ast.unparse(t) for t, value in set_here if isinstance(value, ast.Constant) and value.value is True}
    if not flags:
        return direct, frozenset()
    for statement in (n for n in ast.walk(scope) if isinstance(n, ast.Assign)):
        if not isinstance(statement.value, ast.Call) and _mentions(statement.value, flags):
            flags |= {ast.unparse(target) for target in statement.targets if isinstance(target, ast.Name)}
    tests = [n for n in ast.walk(scope) if isinstance(n, ast.If | ast.Expr) and _mentions(test_of(n), flags)]
    return [*direct, *(side for test in tests for side in _sides(module, test))], frozenset(flags)


def test_of(node: ast.AST) -> ast.AST | None:
    """Return what decides in a statement: the test of an `if`, or of an expression that is one."""
    if isinstance(node, ast.Expr):
        value = node.value
        if isinstance(value, ast.IfExp):
            return value.test
        return value.values[0] if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) else None
    return getattr(node, "test", None)


def _sides(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """Yield the code that a test decides over; where one side leaves the block, the rest of it is the other one."""
    if isinstance(node, ast.Expr):
        value = node.value
        yield from (value.body, value.orelse) if isinstance(value, ast.IfExp) else getattr(value, "values", [])[1:]
    elif isinstance(node, ast.If):
        yield from (ast.Module(body=list(body), type_ignores=[]) for body in (node.body, node.orelse) if body)
        if any(isinstance(block[-1], _LEAVES) for block in (node.body, node.orelse) if block):
            yield ast.Module(body=_after(module, node), type_ignores=[])


def _after(module: Module, node: ast.stmt) -> list[ast.stmt]:
    """Return what comes after a statement in the turn of its loop, or in its function."""
    found: list[ast.stmt] = []
    inner: ast.AST = node
    while inner in module.parents:
        around = module.parents[inner]
        for block in (getattr(around, "body", []), getattr(around, "orelse", [])):
            if isinstance(block, list) and inner in block:
                found += block[block.index(inner) + 1 :]
        if isinstance(around, (*LOOPS, ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        inner = around
    return found


def _mentions(node: ast.AST | None, names: Set[str]) -> bool:
    parts = ast.walk(node) if node is not None else ()
    return any(isinstance(p, ast.Name | ast.Attribute) and ast.unparse(p) in names for p in parts)


def _holds(node: ast.AST | None, inner: ast.AST) -> bool:
    return node is not None and any(part is inner for part in ast.walk(node))
