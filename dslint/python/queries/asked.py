"""What the code of a test asks: its expression, what its names were given, and what functions in it return."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Alt
from dslint.python.source import Module

_DEPTH = 3


def expressions_of(alt: Alt) -> Iterator[ast.expr]:
    """Yield the expressions behind a test, nearest first."""
    for test in _tests(alt):
        yield from behind(alt.module, test)


def in_words(alt: Alt) -> str:
    """Return the code of a test, and what it is where it stands elsewhere: in a variable, a flag or a function."""
    node = getattr(alt.node, "test", alt.node)
    texts = [alt.module.text(node)]
    pending = [(test, 0) for test in _tests(alt)]
    while pending:
        test, depth = pending.pop()
        texts.append(ast.unparse(test))
        if isinstance(test, ast.UnaryOp):
            pending.append((test.operand, depth))
        elif depth < _DEPTH:
            found = [*_same(test)]
            found += _given(alt.module, test) if isinstance(test, ast.Name) else ()
            found += _returned(alt.module, test) if isinstance(test, ast.Call) else ()
            pending += [(inner, depth + 1) for inner in found]
    return "\n".join(texts)


def _tests(alt: Alt) -> list[ast.expr]:
    node = alt.asks or matched(alt) or alt.node
    tests = (
        node.values[:-1] if isinstance(node, ast.BoolOp) else [getattr(node, "test", getattr(node, "subject", None))]
    )
    return [test for test in tests if isinstance(test, ast.expr)]


def matched(alt: Alt) -> ast.Match | None:
    """Return the `match` statement of which a test is a case."""
    if not isinstance(alt.node, ast.pattern):
        return None
    found = alt.module.nodes_of(ast.Match)
    return next((node for node in found if any(case.pattern is alt.node for case in node.cases)), None)


def is_followed(alt: Alt, name: ast.Name) -> bool:
    """Return whether all that a name of a test may stand for is among the expressions behind it."""
    if isinstance(name.ctx, ast.Store) or any(True for _ in _given(alt.module, name)):
        return True
    return any(isinstance(n, ast.FunctionDef) and n.name == name.id for n in alt.module.nodes)


def behind(module: Module, node: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """Yield an expression, and what its names and the functions in it stand for."""
    yield node
    if depth >= _DEPTH:
        return
    for inner in _same(node):
        yield from behind(module, inner, depth)
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            for value in _given(module, part):
                yield from behind(module, value, depth + 1)
        elif isinstance(part, ast.Call):
            for value in _returned(module, part):
                yield from behind(module, value, depth + 1)


def _same(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what a test asks in other words: `(name := x)`, `x is True`, `1 if x else 0`."""
    if isinstance(node, ast.NamedExpr):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield node.test
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        side = node.comparators[0]
        if isinstance(side, ast.Constant) and side.value in (True, False) and isinstance(side.value, bool):
            yield node.left


def _given(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """Yield what is assigned to a name in its function, and the tests that decide on a flag."""
    function = module.function(name) or module.tree
    for node in (*ast.walk(function), *(module.tree.body if function is not module.tree else ())):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name.id for t in node.targets):
            yield node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and getattr(node.target, "id", "") == name.id:
            yield from (node.value,) if node.value is not None else ()
        elif isinstance(node, ast.If) and any(
            isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name.id for t in n.targets)
            for n in node.body
        ):
            yield node.test


def _returned(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """Yield what the functions of the module return that a call may mean by its name."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            returns = (n for n in ast.walk(node) if isinstance(n, ast.Return))
            yield from (n.value for n in returns if n.value is not None)
