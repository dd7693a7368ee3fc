"""Which names a piece of Python code takes, makes and changes."""

from __future__ import annotations

import ast

from dslint.model.dictcalls import DICT_CHANGES


def changed_names(node: ast.AST) -> set[str]:
    """Names of dicts that the code below a node may change: ``x["a"] = 1``, ``x.update()``."""
    found: set[str] = set()
    for inner in ast.walk(node):
        target: ast.expr | None = None
        if isinstance(inner, ast.Subscript) and not isinstance(inner.ctx, ast.Load):
            target = inner.value
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in DICT_CHANGES:
            target = inner.func.value
        elif isinstance(inner, ast.AugAssign):
            target = inner.target
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name):
            found.add(target.id)
    return found


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of all arguments."""
    args = node.args
    extra = [a for a in (args.vararg, args.kwarg) if a is not None]
    return [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, *extra)]


def free_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that a function takes from outside."""
    loaded = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return loaded - own_names(node)


def own_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that a function binds itself."""
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    declared = {name for n in ast.walk(node) if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
    return {*parameters(node), *stored} - declared
