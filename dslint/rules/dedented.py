"""An edit that takes the only statement of an `if` out of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.fix import Edit
from dslint.core.source import Span
from dslint.python.source import Module


def only_statement(module: Module, test: ast.AST, call: ast.AST) -> Edit | None:
    """Return what writes a call in place of the `if` that holds nothing else; `None` where that may change more.

    That is so with an `else` or `elif`, a comment between the test and the call, and a triple-quoted text.
    """
    if not isinstance(test, ast.If) or test.orelse or len(test.body) != 1 or _is_elif(module, test):
        return None
    line = test.body[0]
    if not isinstance(line, ast.Expr) or line.value is not call:
        return None
    text, outer, inner = module.source.text, module.span(test), module.span(line)
    head, body = text[outer.start : inner.start], text[inner.start : inner.end]
    if "#" in head or "\n" not in head or '"""' in body or "'''" in body:
        return None
    step = len(head) - head.rfind("\n") - 1 - (outer.start - text.rfind("\n", 0, outer.start) - 1)
    return Edit(module.path, Span(outer.start, inner.end), body.replace("\n" + " " * step, "\n"))


def _is_elif(module: Module, test: ast.If) -> bool:
    return module.text(test).startswith("elif") or any(test in block for block in _else_blocks(module))


def _else_blocks(module: Module) -> Iterator[list[ast.stmt]]:
    return (node.orelse for node in module.nodes_of(ast.If) if len(node.orelse) == 1)
