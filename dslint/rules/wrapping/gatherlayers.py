"""Functions of autograd that gather over the ranks, and losses in which own rows meet those of all ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dslint.python.source import Module

_GATHERS = re.compile(r"\ball_gather\w*\(")
_REDUCES = re.compile(
    r"(?i)reduce|all_to_all|gather|\bpsum\b|world_?size\s*(?:\(\))?\s*\*|\*\s*(?:\w+\.)*(?:get_)?world"
)
_BY_RANK = re.compile(r"(?i)rank")
_PRODUCTS = frozenset({"matmul", "mm", "bmm", "einsum", "linear", "cosine_similarity", "cdist", "addmm"})
# What puts rows together, or turns them.
_TURNS = frozenset(
    {"cat", "concat", "stack", "view", "reshape", "t", "transpose", "flatten", "contiguous", "normalize"}
)
_MODULES = frozenset({"torch", "F", "functional", "nn", "np", "dist", "self"})
_WEIGHTS = re.compile(r"(?i)weight|proj|protot|cent(?:er|re)|queue|bank|memory|classifier")


@dataclass
class GatherLayer:
    """A class whose forward gathers and whose backward hands on this rank's own part alone."""

    module: Module
    cls: ast.ClassDef
    returned: ast.AST  # where the backward takes its own part


@dataclass
class Meeting:
    """A product of own rows and the rows of all ranks."""

    module: Module
    node: ast.expr


def gather_layers(modules: Iterable[Module]) -> Iterator[GatherLayer]:
    """Yield the classes that gather forwards and reduce nothing backwards."""
    for module in modules:
        if "all_gather" not in module.code or "backward" not in module.code:
            continue
        for cls in module.nodes_of(ast.ClassDef):
            if not any(ast.unparse(base).rpartition(".")[2] == "Function" for base in cls.bases):
                continue
            methods = {n.name: n for n in cls.body if isinstance(n, ast.FunctionDef)}
            forward, backward = methods.get("forward"), methods.get("backward")
            if forward is None or backward is None or not _GATHERS.search(ast.unparse(forward)):
                continue
            taken = _own_part(backward)
            if taken is not None and not any(_REDUCES.search(ast.unparse(n)) for n in backward.body):
                yield GatherLayer(module, cls, taken)


def _own_part(backward: ast.FunctionDef) -> ast.AST | None:
    """Return where a backward takes the part of this rank out of the gradients of all rows."""
    given = {a.arg for a in backward.args.args[1:]}
    given |= {backward.args.vararg.arg} if backward.args.vararg is not None else set()
    ranks = {"rank"}
    for node in ast.walk(backward):
        if isinstance(node, ast.Assign) and _BY_RANK.search(ast.unparse(node.value)):
            ranks |= {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    for node in (n for n in ast.walk(backward) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)):
        names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        asked = {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}
        if names & given and (asked & ranks or _BY_RANK.search(ast.unparse(node.slice))):
            return node
    return None


def meeting(layer: GatherLayer, modules: Iterable[Module]) -> Meeting | None:
    """Return a product of own rows and of what a layer has gathered, in a function that calls it or a helper of it."""
    modules = [module for module in modules if layer.cls.name in module.code or module is layer.module]
    appliers = {f"{layer.cls.name}.apply"} | _aliases(layer, modules)
    helpers = {
        function.name for module in modules for function in module.functions if _gives_gathered(function, appliers)
    }
    for module in modules:
        for function in (n for n in module.functions if n.name not in helpers):
            found = _product(function, appliers | helpers)
            if found is not None:
                return Meeting(module, found)
    return None


def _aliases(layer: GatherLayer, modules: list[Module]) -> set[str]:
    wanted = f"{layer.cls.name}.apply"
    return {
        ast.unparse(target)
        for module in modules
        for node in module.nodes_of(ast.Assign)
        if ast.unparse(node.value) == wanted
        for target in node.targets
    }


def _gives_gathered(function: ast.FunctionDef | ast.AsyncFunctionDef, appliers: set[str]) -> bool:
    """Return whether a function returns what a layer has gathered of its parameter."""
    gathered = _gathered(function, appliers)
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    return any(_is_rows(value, gathered, appliers) for value in returned)


def _gathered(function: ast.AST, appliers: set[str]) -> set[str]:
    """Return the variables of a function that hold the rows of all ranks."""
    found: set[str] = set()
    assigns = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    for _ in range(3):
        for assign in assigns:
            if _is_rows(assign.value, found, appliers):
                found |= {n.id for target in assign.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


def _is_rows(value: ast.expr, names: set[str], appliers: set[str]) -> bool:
    """Return whether an expression only puts rows together or turns them, and does not compare them."""
    if isinstance(value, ast.Tuple | ast.List):
        return any(_is_rows(part, names, appliers) for part in value.elts)
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.Subscript | ast.Attribute):
        return _is_rows(value.value, names, appliers)
    if not isinstance(value, ast.Call):
        return False
    if _is_applied(value, appliers):
        return True
    is_plain = ast.unparse(value.func).rpartition(".")[2] in _TURNS
    base = [value.func.value] if isinstance(value.func, ast.Attribute) else []
    return is_plain and any(_is_rows(part, names, appliers) for part in (*base, *value.args))


def _is_applied(node: ast.Call, appliers: set[str]) -> bool:
    text = ast.unparse(node.func)
    return text in appliers or any(text.endswith(f".{name}") for name in appliers)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _product(function: ast.AST, appliers: set[str]) -> ast.expr | None:
    """Return a product of the rows of all ranks and rows that were not gathered."""
    gathered = _gathered(function, appliers)
    for node in ast.walk(function):
        sides = _sides(node)
        alls = [
            any(_is_rows(n, gathered, appliers) for n in ast.walk(side) if isinstance(n, ast.expr)) for side in sides
        ]
        owns = [
            bool(_names(side) - gathered - _MODULES) and not _WEIGHTS.search(ast.unparse(side))
            for side, is_all in zip(sides, alls, strict=True)
            if not is_all
        ]
        if any(alls) and any(owns) and isinstance(node, ast.expr):
            return node
    return None


def _sides(node: ast.AST) -> list[ast.expr]:
    """Return what is multiplied."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _PRODUCTS:
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        base = [inner] if inner is not None and not (_names(inner) & _MODULES) else []
        return [side for side in (*base, *node.args) if not isinstance(side, ast.Constant)]
    return []
