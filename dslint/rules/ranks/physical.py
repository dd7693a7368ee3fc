"""Numbers taken out of variables of the environment, above all `CUDA_VISIBLE_DEVICES`, that choose devices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.queries.derived import Derived, Piece
from dslint.python.source import Module
from dslint.rules.ranks.visible import VARIABLE

_MOST = 80
# What gives a number or a list on as it is, and methods that cut a text into its parts.
_CONVERSIONS = frozenset({"int", "str", "list", "tuple", "sorted", "torch.device", "next", "iter"})
_CUTS = frozenset({"split", "strip", "rstrip", "replace", "format", "pop"})
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp)


def physical_number(derived: Derived, module: Module, node: ast.AST) -> Piece | None:
    """Return the reading of the variable out of whose text a device gets its number; `None` where there is none."""
    return taken_from(derived, module, node, frozenset((VARIABLE,)))


def taken_from(derived: Derived, module: Module, node: ast.AST, variables: frozenset[str]) -> Piece | None:
    """Return the reading of one of these variables of the environment that a number is taken from; else `None`."""
    found = (piece for piece in number_behind(derived, module, node) if _reads(*piece, variables))
    return next(((place, top) for place, top in found if isinstance(top, ast.expr)), None)


def number_behind(derived: Derived, module: Module, node: ast.AST) -> Iterator[tuple[Module, ast.AST]]:
    """Yield an expression and those that it has its number from, as it is."""
    pending: list[tuple[Module, ast.AST]] = [(module, node)]
    seen: set[ast.AST] = set()
    while pending and len(seen) < _MOST:
        place, top = pending.pop()
        if top in seen:
            continue
        seen.add(top)
        yield place, top
        pending += list(_behind(derived, place, top))


def _reads(module: Module, node: ast.AST, variables: frozenset[str]) -> bool:
    """Return whether code asks for a variable: `os.environ[...]`, `os.environ.get(...)`, `os.getenv(...)`."""
    if not isinstance(node, ast.Call | ast.Subscript):
        return False
    asked = node.slice if isinstance(node, ast.Subscript) else next(iter(node.args), None)
    of = node.value if isinstance(node, ast.Subscript) else node.func
    is_name = isinstance(asked, ast.Constant) and asked.value in variables
    return is_name and module.text(of).rpartition("os.")[2] in ("environ", "environ.get", "getenv")


def _behind(derived: Derived, module: Module, node: ast.AST) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the expressions that an expression has its number from."""
    if isinstance(node, ast.Name):
        yield from _named(derived, module, node)
    elif isinstance(node, ast.Attribute):
        yield from derived.behind(module, node)
    elif isinstance(node, ast.FunctionDef):
        yield from ((module, inner.value) for inner in ast.walk(node) if isinstance(inner, ast.Return) and inner.value)
    else:
        yield from ((module, part) for part in _parts(module, node))
        if isinstance(node, ast.Call) and module.text(node.func) not in _CONVERSIONS:
            yield from (p for p in derived.behind(module, node.func) if isinstance(p[1], ast.FunctionDef))


def _named(derived: Derived, module: Module, node: ast.Name) -> Iterator[tuple[Module, ast.AST]]:
    """Yield what a name is given; in a comprehension what that goes through."""
    at = module.parents.get(node)
    while at is not None and not isinstance(at, ast.stmt):
        for loop in at.generators if isinstance(at, _COMPREHENSIONS) else ():
            if isinstance(loop.target, ast.Name) and loop.target.id == node.id:
                yield module, loop.iter
                return
        at = module.parents.get(at)
    # Of `first, second = ...` nobody knows here which part of it the name gets.
    yield from derived.of_name(module, node)


def _parts(module: Module, node: ast.AST) -> list[ast.expr]:
    """Return the parts of an expression that hold the same number, or the text or list that it is taken from."""
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.List | ast.Tuple):
        return node.elts
    if isinstance(node, _COMPREHENSIONS):
        return [node.elt]
    if isinstance(node, ast.JoinedStr):
        return [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return [node.right] if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str) else []
    return _of_call(module, node) if isinstance(node, ast.Call) else []


def _of_call(module: Module, node: ast.Call) -> list[ast.expr]:
    name = module.text(node.func)
    if name in _CONVERSIONS:
        return node.args
    if name == "map" and len(node.args) == 2:
        return [node.args[1]] if module.text(node.args[0]) in _CONVERSIONS else []
    if isinstance(node.func, ast.Attribute) and node.func.attr in _CUTS:
        return [node.func.value, *(node.args if node.func.attr == "format" else [])]
    return []
