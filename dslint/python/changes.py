"""Which functions change dictionaries and lists that they do not make, by the words in their code alone."""

from __future__ import annotations

import ast
from functools import lru_cache

from dslint.python.scopes import FunctionNode, scope_of

# The methods by which a dictionary changes.
DICT_CHANGES = frozenset({"update", "setdefault", "pop", "popitem", "clear", "__setitem__"})
_CHANGES = DICT_CHANGES | {"append", "extend", "insert", "remove", "sort", "reverse", "__delitem__"}


@lru_cache(maxsize=20_000)
def changes_something(node: FunctionNode) -> bool:
    """Return whether a function writes into a container: `x["a"] = 1`, `x.update()`, `x |= y`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript) and not isinstance(inner.ctx, ast.Load):
            return True
        if isinstance(inner, ast.AugAssign):
            return True
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _CHANGES:
            return True
    return False


@lru_cache(maxsize=20_000)
def outer_names(node: FunctionNode) -> frozenset[str]:
    """Return the names that a function takes from outside."""
    loaded = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    scope = scope_of(node)
    return frozenset(loaded - scope.locals) | scope.globals | scope.nonlocals


@lru_cache(maxsize=20_000)
def fields_in(node: FunctionNode) -> frozenset[str]:
    """Return the names of the attributes of `self` that a method mentions."""
    found = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name))
    return frozenset(n.attr for n in found if isinstance(n.value, ast.Name) and n.value.id in ("self", "cls"))


@lru_cache(maxsize=256)
def changed_in(tree: ast.Module) -> frozenset[str]:
    """Return the names of a module whose dictionaries a function of it may change, or one that this calls."""
    functions = [n for n in ast.walk(tree) if isinstance(n, FunctionNode)]
    names = {n.name for n in functions if not isinstance(n, ast.Lambda) and changes_something(n)}
    found: set[FunctionNode] = set()
    while True:
        more = [n for n in functions if n not in found and (changes_something(n) or outer_names(n) & names)]
        if not more:
            break
        found.update(more)
        names |= {n.name for n in more if not isinstance(n, ast.Lambda)}
    return frozenset(name for node in found for name in outer_names(node))
