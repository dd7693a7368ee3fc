"""Lines that raise when a run comes to them: who catches the exception, which tests choose by a text, what is meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from difflib import get_close_matches

from dslint.python.events import Try
from dslint.python.source import Module
from dslint.rules.runs import Happening

# What catches every exception of a program.
_ANY = frozenset(("Exception", "BaseException"))
_NEAR = 0.65
# What is loaded of a checkpoint, by its name.
_FILE = re.compile(r"(?i)checkpoint|ckpt|state")


def catches(handlers: Iterable[ast.ExceptHandler], *names: str) -> bool:
    """Return whether one of the handlers takes an exception of one of these names."""
    for handler in handlers:
        if handler.type is None:
            return True
        kinds = {n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(handler.type)
                 if isinstance(n, ast.Name | ast.Attribute)}  # fmt: skip
        if kinds & (_ANY | set(names)):
            return True
    return False


def is_caught(module: Module, node: ast.AST, *names: str) -> bool:
    """Return whether a `try` or a `suppress` around a node, in its function, takes such an exception."""
    inner, around = node, module.parents.get(node)
    while around is not None and not isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        if isinstance(around, ast.Try) and inner in around.body and catches(around.handlers, *names):
            return True
        if isinstance(around, ast.With | ast.AsyncWith) and any(
            "suppress" in ast.dump(item.context_expr) for item in around.items
        ):
            return True
        inner, around = around, module.parents.get(around)
    return False


def is_caught_on_way(found: Happening, *names: str) -> bool:
    """Return whether some `try` on the way to an event takes such an exception, in callers, too."""
    return is_caught(found.event.module, found.event.node, *names) or any(
        isinstance(node, Try) and isinstance(node.node, ast.Try) and catches(node.node.handlers, *names)
        for node in found.around
    )


def compares_text(test: ast.AST, *starts: str) -> bool:
    """Return whether a test compares something with a text, as one that chooses among several does.

    A comparison with one of the words `starts` asks how the script is started; `"optimizer" in checkpoint` asks what a
    file holds.
    """
    for compare in ast.walk(test):
        if isinstance(compare, ast.Compare) and not _asks_file(compare):
            has_text = any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(compare))
            if has_text and not any(word in ast.unparse(compare) for word in starts):
                return True
    return False


def _asks_file(compare: ast.Compare) -> bool:
    is_key = isinstance(compare.left, ast.Constant) and isinstance(compare.ops[0], ast.In | ast.NotIn)
    return is_key and len(compare.ops) == 1 and _FILE.search(ast.unparse(compare.comparators[0])) is not None


def near(name: str, names: Iterable[str]) -> str:
    """Return the question behind a message where a name like the missing one exists; else an empty text."""
    known = sorted({other for other in names if other != name and len(other) > 1})
    found = get_close_matches(name, known, 1, _NEAR)
    return f"; did you mean `{found[0]}`?" if found and len(name) > 1 else ""
