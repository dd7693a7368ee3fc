"""Expressions that raise when a run comes to them, read in the text alone: whether it comes there, and how surely."""

from __future__ import annotations

import ast

from dslint.core.finding import Severity
from dslint.python.names import names_of
from dslint.python.source import Module
from dslint.python.uses.ends import ends, never_runs
from dslint.rules.names.latefailures import compares_text
from dslint.rules.names.sureways import SureWays

_LATER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.ExceptHandler, ast.match_case)
# Words of tests that ask how the script is started.
_STARTS = ("argv", "__name__")
_BLOCKS = ("body", "orelse", "finalbody")


def severity_at(module: Module, node: ast.AST, ways: SureWays) -> Severity | None:
    """Return an error where every run comes to an expression, a warning where some do; `None` where none does.

    A note where a text chooses among several: `if args.dataset == "coco"`.
    """
    if _is_dead(module, node):
        return None
    statement = _statement_of(module, node)
    if statement is not None and ways.comes_to(statement):
        return Severity.ERROR
    return Severity.INFO if _is_one_of_many(module, node) else Severity.WARNING


def _statement_of(module: Module, node: ast.AST) -> ast.stmt | None:
    """Return the statement that evaluates an expression whenever it runs."""
    inner, around = node, module.parents.get(node)
    while around is not None and not isinstance(inner, ast.stmt):
        is_second = isinstance(around, ast.BoolOp) and inner is not around.values[0]
        is_arm = isinstance(around, ast.IfExp) and inner is not around.test
        is_told = isinstance(around, ast.Assert) and inner is not around.test
        if is_second or is_arm or is_told or isinstance(around, _LATER) or isinstance(inner, _LATER):
            return None
        inner, around = around, module.parents.get(around)
    return inner if isinstance(inner, ast.stmt) else None


def _is_dead(module: Module, node: ast.AST) -> bool:
    """Return whether no run comes to a node: after a `return`, under `if False` or `if TYPE_CHECKING`."""
    inner, around = node, module.parents.get(node)
    while around is not None:
        test = around.test if isinstance(around, ast.If | ast.While) and inner in around.body else None
        if test is not None and never_runs(test, names_of(module.tree)):
            return True
        for name in _BLOCKS:
            block = getattr(around, name, None)
            if isinstance(block, list) and inner in block and any(ends([s]) for s in block[: block.index(inner)]):
                return True
        inner, around = around, module.parents.get(around)
    return False


def _is_one_of_many(module: Module, node: ast.AST) -> bool:
    """Return whether a test around a place compares something with a text: a name of a dataset, of a model."""
    inner, around = node, module.parents.get(node)
    while around is not None:
        if isinstance(around, ast.match_case):
            return True
        if isinstance(around, ast.If | ast.IfExp) and inner is not around.test and compares_text(around.test, *_STARTS):
            return True
        inner, around = around, module.parents.get(around)
    return False
