"""Numbers in the groups of an optimizer that a script writes itself: `group["lr"] = rate`, `group["lr"] *= factor`."""

from __future__ import annotations

import ast
from collections.abc import Collection

from dslint.python.events import Event


def is_group(event: Event, numbers: Collection[str]) -> bool:
    """Return whether one of these numbers is written in a group of an optimizer (`optimizer.param_groups`)."""
    node = event.node
    key = node.slice if isinstance(node, ast.Subscript) else None
    if not isinstance(node, ast.Subscript) or not isinstance(key, ast.Constant) or key.value not in numbers:
        return False
    return bool(optimizer_words(event))


def optimizer_words(event: Event) -> str:
    """Return the code of the optimizer in whose group an item is written; empty where it is none."""
    node = event.node
    base = ast.unparse(node.value) if isinstance(node, ast.Subscript) else ""
    loops = event.module.nodes_of(ast.For)
    named = {
        ast.unparse(loop.target): ast.unparse(loop.iter) for loop in loops if "param_groups" in ast.unparse(loop.iter)
    }
    found = [base] if "param_groups" in base else []
    found += [source for name, source in named.items() if base in name.strip("()").split(", ")]
    return next((text.partition(".param_groups")[0].rpartition("(")[2] for text in found), "")


def factor(event: Event) -> ast.expr | None:
    """Return by what a number is multiplied: `group["lr"] *= factor`, `group["lr"] = group["lr"] * factor`."""
    statement = event.module.parents.get(event.node)
    if isinstance(statement, ast.AugAssign):
        return statement.value if isinstance(statement.op, ast.Mult) else None
    product = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
        return None
    own = ast.unparse(event.node)
    sides = [(product.left, product.right), (product.right, product.left)]
    return next((other for number, other in sides if ast.unparse(number) == own), None)
