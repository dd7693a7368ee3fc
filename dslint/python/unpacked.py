"""Which expressions a call passes by `*values` and `**options`, where its module writes them out."""

from __future__ import annotations

import ast

from dslint.python.machine import Machine
from dslint.python.names import names_of
from dslint.python.passed import elements_of
from dslint.python.values import Value, Written


def starred(m: Machine, node: ast.expr, count: int) -> list[ast.expr]:
    """Return the expressions of the `count` items of `*node`; none where no single place of the module writes them."""
    module = m.frame.module
    if isinstance(node, ast.Name) and not any(
        isinstance(a.value, ast.Tuple) and isinstance(t, ast.Name) and t.id == node.id
        for a in module.nodes_of(ast.Assign)
        for t in a.targets
    ):
        return []  # to read all names of a module takes longer than to interpret most calls
    found = elements_of(names_of(module.tree), node) if isinstance(node, ast.Name | ast.Tuple | ast.List) else None
    return found if found is not None and len(found) == count else []


def keyword(m: Machine, place: Value) -> ast.expr | None:
    """Return the expression of an item of `**options` by the place of the item, where that is in the same module.

    Whoever asks for the expression shows its text and its line in the module of the call.
    """
    written = place.single
    node = written.value if isinstance(written, Written) else None
    is_item = isinstance(written, Written) and written.key is not written.value
    return node if is_item and isinstance(node, ast.expr) and m.frame.module.holds(node) else None
