"""The number that a setting has when nobody gives another: written out, the default of an option, or a constant."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dslint.python.source import Module


def stated_default(modules: Iterable[Module], node: ast.expr) -> int | None:
    """Return the whole number that an expression is by default, where all places that give one agree."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    found = {number for module in modules for number in _given(module, name)} if name else set()
    return next(iter(found)) if len(found) == 1 else None


def _given(module: Module, name: str) -> Iterator[int | None]:
    for node in module.nodes_of(ast.Call, ast.Assign, ast.AnnAssign):
        value: ast.expr | None = None
        if isinstance(node, ast.Call):
            words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            is_option = isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
            if not is_option or name not in {word.lstrip("-").replace("-", "_") for word in words}:
                continue
            value = next((keyword.value for keyword in node.keywords if keyword.arg == "default"), None)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not any(getattr(target, "id", getattr(target, "attr", "")) == name for target in targets):
                continue
            value = node.value
            if isinstance(value, ast.Name | ast.Attribute):
                continue  # the same under another name
            if isinstance(value, ast.Call):
                value = next((k.value for k in value.keywords if k.arg == "default"), value)
        yield value.value if isinstance(value, ast.Constant) and type(value.value) is int else None
