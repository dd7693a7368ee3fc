"""How a keyword is put into a call."""

from __future__ import annotations

import ast

import pytest

from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.python.source import Module
from dslint.rules.edits import keyword_edit


@pytest.mark.parametrize(
    ("call", "edited"),
    [
        ("f(a)", "f(a, k=0)"),
        ("f()", "f(k=0)"),
        ("f(a, k=None)", "f(a, k=0)"),
        ("f(\n  a,\n  b,  # last\n)", "f(\n  a,\n  b, k=0,  # last\n)"),
        ("f(*a, **b)", "f(*a, **b, k=0)"),
        ("f((x for x in y))", None),
        ("f(x for x in y)", None),
    ],
)
def test_a_keyword_is_put_into_a_call(call: str, edited: str | None) -> None:
    tree = ast.parse(call)
    module = Module(SourceFile("train.py", call), tree)
    node = next(n for n in ast.walk(tree) if isinstance(n, ast.Call))
    edit = keyword_edit(module, node, "k", "0")
    assert (apply_edits(call, [edit]) if edit else None) == edited
