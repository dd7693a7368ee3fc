"""Which functions of a file are worth interpreting for the configs in it, by the words in their code alone."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.model.deepspeed.batch import MICRO, TRAIN
from dslint.python.changes import outer_names
from dslint.python.configdicts import NAMED, TRAINING
from dslint.python.libraries import Libraries

_KEYS = frozenset({"zero_optimization", TRAIN, MICRO, "fp16", "bf16", "optimizer", "stage"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def may_concern(tree: ast.Module, libraries: Libraries) -> Callable[[ast.AST], bool] | None:
    """Return the test of a function that may make or read a config, or call one that does; `None` where none is."""
    readers = libraries.config_readers
    if not _is_telling(tree, readers):
        return None
    functions = [n for n in ast.walk(tree) if isinstance(n, _Function)]
    found = {n for n in functions if NAMED.search(n.name) or _is_telling(n, readers)}
    while True:
        names = {n.name for n in found}
        more = {n for n in functions if n not in found and outer_names(n) & names}
        if not more:
            return found.__contains__
        found |= more


def _is_telling(top: ast.AST, readers: frozenset[str]) -> bool:
    for node in ast.walk(top):
        if isinstance(node, ast.Dict) and any(isinstance(k, ast.Constant) and _speaks(k.value) for k in node.keys):
            return True
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in readers or TRAINING.search(name) or any(k.arg in (*_KEYS, "deepspeed") for k in node.keywords):
                return True
    return False


def _speaks(key: object) -> bool:
    return isinstance(key, str) and (key in _KEYS or key == "steps_per_print")
