"""Where a run restores what it had: by the code that it leads to, since budgets end before long functions do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.python.queries.reach import Piece, reached
from dslint.python.source import Module
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import last_name

_OPTIMIZER = re.compile(r"(?i)optim|^opt(?:_|$)")
_RESTORES = re.compile(r"\.load_(?:state_dict|checkpoint|state)\b")
# Of an optimizer, and of engines and Accelerators that restore theirs.
_ALL = re.compile(r"Optimizer\.load_state_dict$|\.load_(?:checkpoint|state)$")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OWNER = re.compile(r"(?i)engine|accelerator")


# So many pieces of code are looked at: a start names more than a loop.
_MOST_PIECES = 400


def may_restore(run: RunQuery) -> bool:
    """Return whether the text of any file of a run restores something at all."""
    return any(module.search(_RESTORES) is not None for module in run.machine.program.modules())


def optimizer_restores(run: RunQuery, module: Module, scope: ast.AST) -> Iterator[Piece]:
    """Yield what restores an optimizer, or all of an engine, in some code, at the start, or in what they name."""
    begun: list[Piece] = [(module, scope)]
    for home in run.machine.program.modules():
        if home.path == run.path:
            begun += [(home, node) for node in home.tree.body if not isinstance(node, _DEFINITIONS)]
    known = {found.event.node for found in run.occurrences("loads", "loads-state-dict") if _ALL.search(found.event.api)}
    for home, piece in reached(run.machine.program, begun, _MOST_PIECES):
        for node in ast.walk(piece):
            if (node in known or _is_restore(node)) and not is_passed_on(home, node):
                yield home, node


def is_passed_on(module: Module, node: ast.AST) -> bool:
    """Return whether an object hands a state on to what it holds, as wrappers of optimizers do."""
    function = module.function(node)
    return getattr(function, "name", "") in ("load_state_dict", "__setstate__")


def _is_restore(node: ast.AST) -> bool:
    """Return whether code takes the method that restores an optimizer or an engine, to call it or to hand it on."""
    if not isinstance(node, ast.Attribute):
        return False
    owner = last_name(node.value)
    if node.attr == "load_state_dict":
        return _OPTIMIZER.search(owner) is not None
    return node.attr in ("load_checkpoint", "load_state") and _OWNER.search(owner) is not None


def loads_unnamed(run: RunQuery, others: re.Pattern[str]) -> bool:
    """Return whether some code loads a state into what may be anything: its name is none of these others."""
    for module in run.machine.program.modules():
        for call in module.nodes_of(ast.Call):
            function = call.func
            if isinstance(function, ast.Attribute) and function.attr == "load_state_dict":
                owner = function.value
                if not others.search(last_name(owner)) and not is_passed_on(module, call):
                    return True
    return False
