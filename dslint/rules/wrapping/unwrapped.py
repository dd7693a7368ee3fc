"""Whether code takes the model out of its wrapper, also where a test decides that nobody can follow."""

from __future__ import annotations

import ast

from dslint.python.source import Module
from dslint.rules.runs import RunQuery


def is_unwrapped(run: RunQuery, module: Module, base: ast.expr | None) -> bool:
    """Return whether the code behind an expression names the model inside of a wrapper, or is too much to read."""
    if base is None:
        return False
    pieces = run.derived.of(module, [base])
    return pieces is None or any(
        (isinstance(inner, ast.Attribute) and inner.attr == "module")
        or (isinstance(inner, ast.Name | ast.Attribute) and "unwrap" in ast.unparse(inner))
        for _, piece in pieces
        if isinstance(piece, ast.expr)
        for inner in ast.walk(piece)
    )
