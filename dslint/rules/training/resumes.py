"""Where a run restores what it had: by the code that it leads to, since budgets end before long functions do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.python.queries.reach import reached
from dslint.python.source import Module
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import last_name

_OPTIMIZER = re.compile(r"(?i)optim|^opt(?:_|$)")
_OWNER = re.compile(r"(?i)engine|accelerator")


def optimizer_restores(run: RunQuery, module: Module, scope: ast.AST) -> Iterator[tuple[Module, ast.Call]]:
    """Yield the calls that restore an optimizer, or all of an engine, in a piece of code or in what it names."""
    for home, piece in reached(run.machine.program, [(module, scope)]):
        for node in ast.walk(piece):
            if isinstance(node, ast.Call) and _is_restore(node) and not _is_passed_on(home, node):
                yield home, node


def _is_passed_on(module: Module, call: ast.Call) -> bool:
    """Return whether an object hands a state on to what it holds, as wrappers of optimizers do."""
    function = module.function(call)
    return getattr(function, "name", "") in ("load_state_dict", "__setstate__")


def _is_restore(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    owner = last_name(function.value)
    if function.attr == "load_state_dict":
        return _OPTIMIZER.search(owner) is not None
    return function.attr in ("load_checkpoint", "load_state") and _OWNER.search(owner) is not None
