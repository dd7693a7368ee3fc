"""First looks for rules about DeepSpeed engines: byte patterns and questions to the cheap syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.model.script.quick import Flat, call_name, expression_name, flat

# Without one of these no variable of a file holds an engine.
ENGINE_WORDS = r"deepspeed\.initialize|\binitialize\(|model_engine|ds_engine|deepspeed_engine|DeepSpeedEngine"
ENGINE = (r"deepspeed", ENGINE_WORDS)


def method_calls(nodes: Flat, *methods: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls ``x.method()`` with the last name of ``x``; "" where it has none."""
    for call in nodes.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in methods:
            yield expression_name(call.func.value), call


def engines(nodes: Flat) -> set[str]:
    """The names of what ``deepspeed.initialize`` returns first."""
    found = set()
    for node in nodes.nodes(ast.Assign):
        value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
        if isinstance(value, ast.Call) and call_name(value) == "initialize":
            target = node.targets[0]
            first = target.elts[0] if isinstance(target, ast.Tuple | ast.List) and target.elts else target
            found.add(expression_name(first))
    return found - {""}


def steps_another(tree: ast.Module) -> bool:
    """Something steps that is not the engine itself: an optimizer or a schedule."""
    nodes = flat(tree)
    own = engines(nodes)
    return any(name not in own for name, _ in method_calls(nodes, "step"))


def plain_backward(tree: ast.Module) -> bool:
    """``loss.backward()``: no engine or accelerator runs it."""
    return any(not call.args for _, call in method_calls(flat(tree), "backward"))
