"""Where a node of a LibCST module stands, without the code of all that stands before it.

The standard library's tree knows the places of all statements. Both trees hold the same statements in the same order,
so that a node is found by running the code generator over its own statement alone. What it writes is compared with
the source: where it differs, nothing is known here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import libcst as cst

from dslint.core.source import SourceFile
from dslint.parse.places import code_up_to

# In the order of the source.
_SUITES = ("body", "handlers", "cases", "orelse", "finalbody")
_LINES = (cst.SimpleStatementLine, cst.SimpleStatementSuite)


class Statements:
    """The statements of a module, by both trees.

    Raises:
        ValueError: the trees do not hold the same statements.
    """

    def __init__(self, source: SourceFile, module: cst.Module, tree: ast.Module) -> None:
        self._source = source
        self._module = module
        own, standard = list(_cst_statements(module)), list(_ast_statements(tree))
        if len(own) != len(standard):
            raise ValueError("other statements than in the syntax tree")
        # A line of several statements begins with the first.
        self._places = {id(node): other for node, other in reversed(list(zip(own, standard, strict=True)))}

    def place(self, node: cst.CSTNode, parents: Iterator[cst.CSTNode]) -> tuple[int, int] | None:
        """Start and end of a node in code points; ``parents`` are the nodes around it, the nearest first.

        ``None`` where the statement around it is none of the module, or is not written as the source is.
        """
        statement = node
        for parent in parents:
            if isinstance(parent, cst.IndentedBlock | cst.Module):
                break
            statement = parent
        first = self._places.get(id(statement))
        if first is None or first.lineno > len(self._source.line_starts):
            return None  # Python ends a line at a lone carriage return too
        text, line = self._source.text, self._source.line_text(first.lineno)
        column = len(line.encode()[: first.col_offset].decode("utf-8", "replace"))
        start = self._source.line_starts[first.lineno - 1] + column
        code = code_up_to(self._module, statement, node, line[:column])
        if code is None or not text.startswith(code.text, start):
            return None
        return start + code.start, start + code.end


def _cst_statements(module: cst.Module) -> Iterator[cst.CSTNode]:
    pending: list[Any] = [module]
    while pending:
        node = pending.pop()
        if isinstance(node, cst.BaseCompoundStatement):
            yield node
        if isinstance(node, _LINES):
            yield node
            yield from node.body[1:]
            continue
        for name in reversed(_SUITES):
            inner = getattr(node, name, None)
            if isinstance(inner, tuple | list):
                pending += reversed(inner)
            elif inner is not None:
                pending.append(inner)


def _ast_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in reversed(_SUITES):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                pending += reversed(inner)
