"""The code that a piece of the project leads to by the names in it: no interpretation, for questions about words."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator

from dslint.python.program import Program
from dslint.python.queries.bound import stores
from dslint.python.source import Module

_MAX_PIECES = 80
_MAX_BASES = 3
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Piece = tuple[Module, ast.AST]
Class = tuple[Module, ast.ClassDef]


def reached(program: Program, code: Iterable[Piece], most: int = _MAX_PIECES) -> list[Piece]:
    """Return the pieces with the functions, classes and values of modules of the project that they name."""
    pending, found = deque(code), dict[Piece, None]()
    while pending and len(found) < most:
        piece = pending.popleft()
        if piece in found:
            continue
        found[piece] = None
        module, node = piece
        for words in dict.fromkeys(words for n in ast.walk(node) if (words := _words(n))):
            pending.extend(defined(program, module, words))
    return list(found)


def meant(program: Program, module: Module, node: ast.AST) -> list[Piece]:
    """Return the definitions and values of modules of the project that a name, or `module.name`, stands for."""
    words = _words(node)
    return list(defined(program, module, words)) if words else []


def functions(program: Program, module: Module, call: ast.Call) -> list[Piece]:
    """Return the functions and methods of the project that a call may mean."""
    function = call.func
    found: list[Piece] = [(m, n) for m, n in meant(program, module, function) if isinstance(n, _DEFINITIONS[:2])]
    if isinstance(function, ast.Attribute) and not found:
        for home, cls in classes(program, module, function.value):
            found += methods(program, home, cls, function.attr)
    return found


def classes(program: Program, module: Module, node: ast.expr) -> list[Class]:
    """Return the classes of the project of which an object is made, in the module that names it."""
    name = ast.unparse(node)
    found: list[Class] = []
    around = module.parents.get(node) if name in ("self", "cls") else None
    while around is not None:
        if isinstance(around, ast.ClassDef):
            return [(module, around)]
        around = module.parents.get(around)
    for call in module.once(_made).get(name, ()):
        found += [(m, n) for m, n in meant(program, module, call.func) if isinstance(n, ast.ClassDef)]
    return found


def _made(module: Module) -> dict[str, list[ast.Call]]:
    """Return the calls whose value each variable or field gets, by its code."""
    found: dict[str, list[ast.Call]] = {}
    for statement in module.nodes_of(ast.Assign, ast.AnnAssign):
        for target, value in stores(statement):
            if isinstance(value, ast.Call):
                found.setdefault(ast.unparse(target), []).append(value)
    return found


def methods(program: Program, module: Module, cls: ast.ClassDef, name: str, depth: int = 0) -> list[Piece]:
    """Return the method of a class, or of its bases in the project."""
    own: list[Piece] = [(module, n) for n in cls.body if isinstance(n, _DEFINITIONS[:2]) and n.name == name]
    for base in cls.bases if not own and depth < _MAX_BASES else ():
        for home, found in meant(program, module, base):
            own += methods(program, home, found, name, depth + 1) if isinstance(found, ast.ClassDef) else []
    return own


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
