"""Parts of a `ModuleDict` or `ModuleList` that no code reads, where all code names the part that it reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.machine import Machine
from dslint.python.values import ClassAtom

_CONTAINERS = ("ModuleDict", "ModuleList")


def unread_parts(m: Machine, owner: ClassAtom, field: str, made: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield how each part of a container is called that nothing reads, and where it is made."""
    word = made.func if isinstance(made, ast.Call) else None
    kind = getattr(word, "attr", "") or getattr(word, "id", "")
    if not isinstance(made, ast.Call) or kind not in _CONTAINERS or len(made.args) > 1 or made.keywords:
        return
    init = next((n for n in owner.node.body if getattr(n, "name", "") == "__init__"), owner.node)
    parts = dict(_given(made)) if made.args else {}
    parts.update(_added(init, field))
    adding = {id(node) for node in ast.walk(init) if _adds(node, field)}
    above = {id(inner): node for node in _trees(m) for inner in ast.iter_child_nodes(node)}
    uses = [use for module in m.program.modules() for use in module.attributes.get(field, ())]
    if not parts or None in parts:
        return
    count = len(parts)
    for use in uses:
        parent = above.get(id(use))
        stored = isinstance(getattr(use, "ctx", None), ast.Store)
        if stored or id(parent) in adding:
            continue
        key = _key(parent) if isinstance(parent, ast.Subscript) and parent.value is use else None
        if key is None:
            return  # a loop, a variable: any of them
        if isinstance(key, int) and key < 0:
            key += count
        parts.pop(key, None)
    if any(isinstance(getattr(above.get(id(use)), "ctx", None), ast.Load) for use in uses):
        yield from ((f"{field}[{key!r}]", part) for key, part in parts.items())


def _trees(m: Machine) -> Iterator[ast.AST]:
    return (node for module in m.program.modules() for node in module.nodes)


def _key(node: ast.Subscript) -> object:
    """Return the constant that a subscript names."""
    index, sign = node.slice, 1
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
        index, sign = index.operand, -1
    value = index.value if isinstance(index, ast.Constant) else None
    if type(value) is int:
        return sign * value
    return value if isinstance(value, str) else None


def _given(made: ast.Call) -> Iterator[tuple[object, ast.expr]]:
    """Yield the parts that the constructor of the container gets."""
    given = made.args[0]
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            yield key.value if isinstance(key, ast.Constant) else None, value
    elif isinstance(given, ast.List | ast.Tuple):
        yield from enumerate(given.elts)
        if any(isinstance(part, ast.Starred) for part in given.elts):
            yield None, made
    elif isinstance(given, ast.ListComp) and len(given.generators) == 1 and not given.generators[0].ifs:
        keys = _values(given.generators[0].iter)
        yield from ((number, given.elt) for number in range(len(keys))) if keys else [(None, made)]
    else:
        yield None, made


def _added(init: ast.AST, field: str) -> Iterator[tuple[object, ast.expr]]:
    """Yield the parts that the constructor of the model puts in: `self.x["a"] = ...`, `self.x.append(...)`."""
    number = 0
    loops = {id(inner): node for node in ast.walk(init) if isinstance(node, ast.For) for inner in ast.walk(node)}
    tests = {id(inner) for node in ast.walk(init) if isinstance(node, ast.If) for inner in ast.walk(node)}
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and (target := _item(node.targets[0], field)) is not None:
            loop, value = loops.get(id(node)), node.value
            is_turn = loop is not None and ast.unparse(target.slice) == ast.unparse(loop.target)
            keys = _values(loop.iter) if loop is not None and is_turn else [_key(target)]
        elif isinstance(node, ast.Call) and _adds(node.func, field) and len(node.args) == 1:
            loop, value = loops.get(id(node)), node.args[0]
            count = len(_values(loop.iter)) if loop is not None else 1
            keys = [*range(number, number + count)] or [None]
            number += count
        else:
            continue
        yield from ((key, value) for key in (keys if keys and id(node) not in tests else [None]))


def _values(over: ast.expr) -> list[object]:
    """Return what a loop goes through where it is written out: a list of constants, `range(3)`."""
    if isinstance(over, ast.List | ast.Tuple):
        return [part.value if isinstance(part, ast.Constant) else None for part in over.elts]
    is_range = isinstance(over, ast.Call) and getattr(over.func, "id", "") == "range" and len(over.args) == 1
    last = over.args[0] if isinstance(over, ast.Call) and is_range else None
    return list(range(last.value)) if isinstance(last, ast.Constant) and type(last.value) is int else []


def _item(node: ast.AST, field: str) -> ast.Subscript | None:
    return node if isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") == field else None


def _adds(node: ast.AST, field: str) -> bool:
    """Return whether a node is `self.x.append`, or `self.x[...]` that is set."""
    if isinstance(node, ast.Attribute):
        return node.attr == "append" and getattr(node.value, "attr", "") == field
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _item(node, field) is not None
