"""Which releases of other libraries the import of a release checks: ``pkgs_to_check_at_runtime`` of Hugging Face."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

_LISTED = "pkgs_to_check_at_runtime"


def checked(trees: Mapping[str, ast.Module], deps: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The requirement as it is written, and the module that checks it while it is imported."""
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == _LISTED:
                yield from ((deps[name], module) for name in _names(node.value) if name in deps)


def _names(value: ast.expr) -> list[str]:
    """``["a", "b"]`` or ``"a b".split()``."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "split":
        value = value.func.value
    found = ast.literal_eval(value) if isinstance(value, (ast.List, ast.Tuple, ast.Constant)) else ()
    return found.split() if isinstance(found, str) else list(found)
