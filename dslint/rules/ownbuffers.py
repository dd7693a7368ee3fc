"""Buffers that a module of the project registers itself, and what its `forward` does with them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Autograd keeps what these get, or what they are called on, until the backward pass.
_KEEPING = frozenset(
    {
        *("conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose1d", "linear", "matmul", "bmm", "einsum"),
        *("mul", "embedding", "index_select", "gather", "masked_fill", "where", "mm", "multiply", "upfirdn2d"),
    }
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def registered_buffers(node: ast.ClassDef) -> dict[str, ast.Call]:
    """Return the buffers that a class registers by their names."""
    found: dict[str, ast.Call] = {}
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        is_one = isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer" and bool(call.args)
        if is_one and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
            found[call.args[0].value] = call
    return found


def kept_buffers(node: ast.ClassDef) -> Iterator[str]:
    """Yield the buffers that autograd keeps for the backward pass of a class's `forward`."""
    names = registered_buffers(node)
    forward = next((n for n in node.body if isinstance(n, _FUNCTIONS) and n.name == "forward"), None)
    if not names or forward is None:
        return
    for part in ast.walk(forward):
        given: list[ast.expr] = []
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult | ast.MatMult):
            given = [part.left, part.right]
        elif isinstance(part, ast.Call) and _called(part) in _KEEPING:
            given = [*part.args, *(k.value for k in part.keywords)]
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and _is_self(part.func.value):
            given = _looked_up(part)
        for inner in given:
            if isinstance(inner, ast.Attribute) and _is_self(inner.value) and inner.attr in names:
                yield inner.attr


def _looked_up(call: ast.Call) -> list[ast.expr]:
    """Return what a layer with the name of an embedding gets: it keeps the numbers that it looks up."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return [*call.args] if "emb" in name else []


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
