"""Questions to the cheap syntax tree of the standard library, asked before LibCST is worth its price."""

from __future__ import annotations

import ast


def call_name(call: ast.Call) -> str:
    """The last part of the called name: ``barrier`` for ``dist.barrier()``; "" for other callees."""
    return expression_name(call.func)


def expression_name(node: ast.expr | None) -> str:
    """The last part of a name, an attribute, or a call of one; "" for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
