"""Which code of the project a call leads to, and by which name it gets an argument: by names alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.names import names_of
from dslint.python.program import Program
from dslint.python.queries.reach import defined
from dslint.python.source import Module
from dslint.rules.names.decorators import KEEPS

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
# Code that may read all parameters of its function at once.
_ALL = re.compile(r"\b(?:locals\(|vars\(\s*\)|eval\(|exec\(|save_hyperparameters\(|_getframe|inspect\.|currentframe)")
_MOST_BASES = 4
# Whose parameters others decide.
_INTERFACES = frozenset(("abstractmethod", "override", "wraps", "property", "cached_property"))


@dataclass(frozen=True)
class Target:
    """A function of the project that a call leads to. `skips`: its first parameter is the object or class."""

    module: Module
    function: FunctionNode
    name: str
    skips: bool = False


def targets_of(program: Program, module: Module, call: ast.Call) -> list[Target] | None:
    """Return the functions that a call may lead to; `None` where it may lead to others, too."""
    func = call.func
    if isinstance(func, ast.Name):
        found = list(_named(program, module, func))
    elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        inner = func.value.id
        if inner == "self":
            return _methods(program, func.attr)
        found = list(defined(program, module, (inner, func.attr))) if inner in module.imported else []
    else:
        found = []
    targets: list[Target] = []
    for home, node in found:
        more = _entered(program, home, node)
        if more is None:
            return None
        targets += more
    return targets or _called(program, call)


def _named(program: Program, module: Module, func: ast.Name) -> Iterator[tuple[Module, ast.AST]]:
    """Yield what a name may mean: definitions of the module, and of those that it imports from."""
    for binding in names_of(module.tree).bindings(func):
        if binding.kind == "import":
            yield from defined(program, module, (func.id,))
        else:
            yield module, binding.node if binding.kind == "definition" else func


def _entered(program: Program, module: Module, node: ast.AST) -> list[Target] | None:
    """Return the function that a call of a definition runs; `None` where nobody knows."""
    if isinstance(node, FunctionNode):
        return [Target(module, node, node.name)]
    if not isinstance(node, ast.ClassDef) or node.keywords:
        return None
    made = _constructor(program, module, node)
    return [Target(made[0], made[1], node.name, skips=True)] if made is not None else None


def _constructor(
    program: Program, module: Module, cls: ast.ClassDef, depth: int = 0
) -> tuple[Module, FunctionNode] | None:
    """Return the `__init__` of a class or of its first base of the project."""
    own = {n.name: n for n in cls.body if isinstance(n, FunctionNode)}
    if "__new__" in own or cls.decorator_list or depth > _MOST_BASES:
        return None
    if "__init__" in own:
        return module, own["__init__"]
    for base in cls.bases[:1]:
        words = tuple(ast.unparse(base).split("."))
        for home, node in defined(program, module, words) if len(words) < 3 else ():
            if isinstance(node, ast.ClassDef):
                return _constructor(program, home, node, depth + 1)
    return None


def _methods(program: Program, name: str) -> list[Target] | None:
    """Return all methods of that name that classes of the run define."""
    found = []
    for module in program.modules():
        for function in module.functions:
            if function.name == name and isinstance(module.parents.get(function), ast.ClassDef):
                is_static = any(ast.unparse(d) == "staticmethod" for d in function.decorator_list)
                found.append(Target(module, function, name, skips=not is_static))
    return found or None


def _called(program: Program, call: ast.Call) -> list[Target] | None:
    """Return the method that the interpreter has seen a call lead to, with those of its name."""
    known = program.called.get(call)
    if known is None or not isinstance(known.node, FunctionNode):
        return None
    if known.owner is None:
        return [Target(known.module, known.node, known.name)]
    return _methods(program, known.name) if known.name != "__init__" else None


def parameter_of(target: Target, call: ast.Call, given: ast.AST) -> tuple[str, bool] | None:
    """Return the parameter that takes an argument, and whether it takes any others, too; `None` where nobody knows."""
    arguments = target.function.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if isinstance(given, ast.keyword):
        if given.arg is None:
            return None
        if given.arg in positional or given.arg in [a.arg for a in arguments.kwonlyargs]:
            return given.arg, False
        return (arguments.kwarg.arg, True) if arguments.kwarg is not None else None
    at = next(i for i, value in enumerate(call.args) if value is given)
    if any(isinstance(value, ast.Starred) for value in call.args[: at + 1]):
        return None
    at += target.skips
    if at < len(positional):
        return positional[at], False
    return (arguments.vararg.arg, True) if arguments.vararg is not None else None


def says_nothing_of_use(target: Target) -> bool:
    """Return whether the body of a function does not show what it uses: a stub, or code that takes all at once."""
    function = target.function
    body = [n for n in function.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    if all(isinstance(n, ast.Pass | ast.Raise) for n in body):
        return True
    if len(body) == 1 and isinstance(body[0], ast.Return) and not isinstance(body[0].value, ast.Call):
        return True
    said = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    if any(ast.unparse(d).rpartition(".")[2] not in KEEPS - _INTERFACES for d in said):
        return True
    return _ALL.search(target.module.text(function)) is not None
