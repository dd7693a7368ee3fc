"""Where a module reads names, fields and items, and what it calls, by the last name of each: of its text alone.

Each function is for `Module.once`, so that the runs of a project ask a module one time.
"""

from __future__ import annotations

import ast

from dslint.python.source import Module

_BY_NAME = frozenset(("getattr", "hasattr", "get", "pop", "attrgetter", "setattr", "delattr"))


def names_read(module: Module) -> dict[str, list[ast.Name]]:
    """Return where each variable is read."""
    found: dict[str, list[ast.Name]] = {}
    for node in module.nodes_of(ast.Name):
        if isinstance(node.ctx, ast.Load):
            found.setdefault(node.id, []).append(node)
    return found


def fields_read(module: Module) -> dict[str, list[ast.AST]]:
    """Return where a field of each name is read of anything, also by its name as a text."""
    found: dict[str, list[ast.AST]] = {name: [*nodes] for name, nodes in module.attributes.items()}
    for call in module.nodes_of(ast.Call):
        if called(call) in _BY_NAME:
            for text in (a.value for a in call.args if isinstance(a, ast.Constant)):
                if isinstance(text, str):
                    found.setdefault(text, []).append(call)
    for pattern in module.nodes_of(ast.MatchClass):
        for name in pattern.kwd_attrs:
            found.setdefault(name, []).append(pattern)
    return found


def items_read(module: Module) -> dict[str, list[ast.AST]]:
    """Return where an item of each name is read of anything: `settings["name"]`."""
    found: dict[str, list[ast.AST]] = {}
    for item in module.nodes_of(ast.Subscript):
        if isinstance(item.ctx, ast.Load) and isinstance(item.slice, ast.Constant):
            found.setdefault(str(item.slice.value), []).append(item)
    return found


def calls_made(module: Module) -> dict[str, list[ast.AST]]:
    """Return the calls of what has each last name."""
    found: dict[str, list[ast.AST]] = {}
    for call in module.nodes_of(ast.Call):
        found.setdefault(called(call), []).append(call)
    return found


def mentions(module: Module) -> dict[str, int]:
    """Return how often each name is a variable or a field, read or set."""
    found: dict[str, int] = {}
    names = [*(node.id for node in module.nodes_of(ast.Name)), *(node.attr for node in module.nodes_of(ast.Attribute))]
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found


def functions_defined(module: Module) -> frozenset[str]:
    """Return the names of the functions and methods."""
    return frozenset(function.name for function in module.functions)


def called(call: ast.Call) -> str:
    """Return the last name of what a call calls; the end of its code where that has no name."""
    func = call.func
    if isinstance(func, ast.Name):
        return func.id
    return func.attr if isinstance(func, ast.Attribute) else ast.unparse(func).rpartition(".")[2]
