"""First looks for rules about training steps: questions to the cheap syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.model.script.quick import Flat, expression_name, flat


def method_calls(nodes: Flat, *methods: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls ``x.method()`` with the last name of ``x``; "" where it has none."""
    for call in nodes.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in methods:
            yield expression_name(call.func.value), call


def plain_backward(tree: ast.Module) -> bool:
    """``loss.backward()``: no engine or accelerator runs it."""
    return any(not call.args for _, call in method_calls(flat(tree), "backward"))
