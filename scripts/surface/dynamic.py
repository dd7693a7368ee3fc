"""Names that code makes: lists of texts, and the names that a module's ``__getattr__`` answers to."""

from __future__ import annotations

import ast


def strings_of(node: ast.expr, literals: dict[str, list[str]], one: bool = False) -> list[str] | None:
    """The texts of a list, set, tuple or dict (its keys), with names of such; ``None`` where not all are known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value] if one else None
    if isinstance(node, ast.Name):
        known = literals.get(node.id)
        return None if known is None else list(known)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.BitOr)):
        left, right = strings_of(node.left, literals), strings_of(node.right, literals)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Name):
        return (
            strings_of(node.args[0], literals)
            if node.func.id in ("list", "set", "tuple", "sorted", "frozenset")
            else None
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
        return strings_of(node.func.value, literals)
    if isinstance(node, ast.Dict):
        return _texts(node.keys, literals)
    return _texts(node.elts, literals) if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else None


def _texts(nodes: list[ast.expr] | list[ast.expr | None], literals: dict[str, list[str]]) -> list[str] | None:
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            inner = strings_of(node.value, literals)
            if inner is None:
                return None
            found += inner
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        else:
            return None
    return found


def listed_names(node: ast.FunctionDef, literals: dict[str, list[str]]) -> tuple[list[str], bool]:
    """The names that a module's ``__getattr__`` answers to, and whether these are all."""
    asked = node.args.args[0].arg if node.args.args else ""
    names: list[str] = []
    complete = _block(node.body, asked, literals, names)
    return names, complete


def _block(body: list[ast.stmt], asked: str, literals: dict[str, list[str]], names: list[str]) -> bool:
    """Collect the names of a block; whether it answers to no other name."""
    complete = True
    for node in body:
        if isinstance(node, ast.If):
            found = _asked(node.test, asked, literals)
            if found is not None:
                names += found
            elif not _block(node.body, asked, literals, names):
                complete = False
            if not _block(node.orelse, asked, literals, names):
                complete = False
        elif isinstance(node, ast.Return) and node.value is not None:
            complete = False
        elif isinstance(node, (ast.Try, ast.For, ast.While, ast.With)):
            complete &= not any(isinstance(inner, ast.Return) for inner in ast.walk(node))
    return complete


def _asked(test: ast.expr, asked: str, literals: dict[str, list[str]]) -> list[str] | None:
    """The names for which a test ``name == "x"`` or ``name in (...)`` holds."""
    if isinstance(test, ast.BoolOp):
        parts = [_asked(value, asked, literals) for value in test.values]
        if isinstance(test.op, ast.And):
            return next((part for part in parts if part is not None), None)
        return None if None in parts else [name for part in parts if part is not None for name in part]
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or ast.unparse(test.left) != asked:
        return None
    if isinstance(test.ops[0], ast.Eq):
        return strings_of(test.comparators[0], literals, one=True)
    return strings_of(test.comparators[0], literals) if isinstance(test.ops[0], ast.In) else None
