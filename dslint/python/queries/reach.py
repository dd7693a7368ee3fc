"""The code that a piece of the project leads to by the names in it: no interpretation, for questions about words."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dslint.python.program import Program
from dslint.python.source import Module

_MAX_PIECES = 80
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Piece = tuple[Module, ast.AST]


def reached(program: Program, code: Iterable[Piece]) -> list[Piece]:
    """Return the pieces with the functions, classes and values of modules of the project that they name."""
    pending, found = list(code), dict[Piece, None]()
    while pending and len(found) < _MAX_PIECES:
        piece = pending.pop()
        if piece in found:
            continue
        found[piece] = None
        module, node = piece
        for name in {words for n in ast.walk(node) if (words := _words(n))}:
            pending.extend(defined(program, module, name))
    return list(found)


def _words(node: ast.AST) -> tuple[str, ...]:
    """Return a name, or the name and the attribute of `module.function`."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return (node.value.id, node.attr)
    return ()


def defined(program: Program, module: Module, words: tuple[str, ...], depth: int = 0) -> Iterator[Piece]:
    """Yield what a name of a module stands for: a definition, an assignment, or the same of an imported name."""
    name, *rest = words
    if not rest:
        for statement in module.tree.body:
            if (isinstance(statement, _DEFINITIONS) and statement.name == name) or _assigns(statement, name):
                yield module, statement
    for home, inner in module.imported.get(name, ()) if depth < 3 else ():
        named = f"{home}{'' if home.endswith('.') or not inner else '.'}{inner}"
        path, wanted = (named, tuple(rest)) if rest else (home, (inner,))
        file = program.resolve(module, path)
        other = program.load(file) if file else None
        if other is not None and wanted != ("",):
            yield from defined(program, other, wanted, depth + 1)


def _assigns(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
