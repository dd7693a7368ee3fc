"""What statements bind, and in which function and in which loop a name lives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.source import Module

LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What gives the same value in another form.
_SAME = frozenset({"float", "int", "item", "copy", "deepcopy", "clone", "detach", "cpu", "round"})


def stores(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield what a statement binds, each with its value where that is written out."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if not isinstance(target, ast.Tuple | ast.List):
                yield target, node.value
                continue
            parts = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else []
            fits = len(parts) == len(target.elts)
            yield from zip(target.elts, parts if fits else [None] * len(target.elts), strict=True)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        yield from ((node.target, node.value),) if node.value is not None else ()
    elif isinstance(node, ast.AugAssign):
        yield node.target, None
    elif isinstance(node, ast.For | ast.AsyncFor):
        yield from ((part, None) for part in ast.walk(node.target) if isinstance(part, ast.expr))


def scope_of(module: Module, node: ast.AST, name: str) -> ast.AST:
    """Return the function in which a name lives; where it is global, the module."""
    function = module.function(node)
    while isinstance(function, ast.Lambda):
        function = module.function(module.parents[function])
    if function is None or any(
        isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in ast.walk(function)
    ):
        return module.tree
    return function


def outermost_loop(module: Module, node: ast.AST) -> ast.AST | None:
    """Return the outermost loop around a node in its function; where it has none, the function."""
    around = [part for part in parents(module, node) if isinstance(part, LOOPS)]
    return around[-1] if around else module.function(node)


def parents(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is around a node in its function, innermost first."""
    while node in module.parents and not isinstance(node, _FUNCTIONS):
        node = module.parents[node]
        yield node


def is_inside(module: Module, node: ast.AST, loop: ast.AST | None) -> bool:
    """Return whether a node stands in a loop or function."""
    return loop is not None and (module.function(node) is loop or any(part is loop for part in parents(module, node)))


def parameters(scope: ast.AST) -> set[str]:
    """Return the names of the parameters of a function."""
    arguments = scope.args if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else None
    return {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} if arguments else set()


def plain(node: ast.expr) -> str:
    """Return the code of a value below conversions: `float(x)`, `x.item()`, `copy.deepcopy(x)`."""
    while isinstance(node, ast.Call):
        function = node.func
        word = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if word not in _SAME:
            break
        inner = node.args[0] if node.args else getattr(function, "value", None)
        if inner is None:
            break
        node = inner
    return ast.unparse(node)


def stored(module: Module, scope: ast.AST) -> dict[str, list[ast.expr]]:
    """Return what a function of a module binds, with the values that are written out."""
    known = module.once(_stored)
    found = known.get(scope)
    if found is None:
        found = known[scope] = {}
        for target, value in (pair for node in ast.walk(scope) for pair in stores(node)):
            found.setdefault(ast.unparse(target), []).extend([value] if value is not None else [])
    return found


def _stored(_: Module) -> dict[ast.AST, dict[str, list[ast.expr]]]:
    return {}
