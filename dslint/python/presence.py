"""Tests that ask whether a caller has given an argument at all: `if query:` of `query: Dict[str, Tensor] = None`."""

from __future__ import annotations

import ast
import re

from dslint.python.binding import annotation_of, default_of
from dslint.python.machine import Machine
from dslint.python.values import Const, Tuple, Value
from dslint.python.varies import DATA, DIVERGENT

# A batch, or a part of one, is empty in no step; a list of a rank's own share may be.
_WHOLE = re.compile(r"\b(?:[Dd]ict|Mapping|MutableMapping|BatchEncoding|BatchFeature|Tensor)\b")


def truth(m: Machine, test: ast.expr, value: Value) -> tuple[int, int, int]:
    """Return the lanes on which a test may be true, those on which it may be false, and why ranks may differ.

    Whether an argument is given is decided by the code that calls, and not by what the batch of a rank holds.
    """
    true, false, varies = m.truth(value)
    if varies & DIVERGENT == DATA and _asks_whether_given(m, test):
        varies &= ~DATA
    return true, false, varies


def _asks_whether_given(m: Machine, test: ast.expr) -> bool:
    """Return whether a test asks for optional arguments only, for which the caller has given something."""
    from dslint.python.expressions import evaluate

    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _asks_whether_given(m, test.operand)
    if isinstance(test, ast.BoolOp):
        return all(_asks_whether_given(m, operand) for operand in test.values)
    function = m.frame.function.node if m.frame.function is not None else None
    if not isinstance(test, ast.Name) or not isinstance(function, ast.FunctionDef):
        return False
    default = default_of(function.args, test.id)
    annotation = annotation_of(function.args, test.id)
    is_optional = isinstance(default, ast.Constant) and default.value is None
    if not is_optional or annotation is None or _WHOLE.search(ast.unparse(annotation)) is None:
        return False
    return not any(isinstance(atom, Const | Tuple) for atom in evaluate(m, test).atoms)
