"""Buffers that a module of the project registers itself, and what its `forward` does with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

# Autograd keeps what these get, or what they are called on, until the backward pass.
_KEEPING = frozenset(
    {
        *("conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose1d", "linear", "matmul", "bmm", "einsum"),
        *("mul", "embedding", "index_select", "gather", "masked_fill", "where", "mm", "multiply", "upfirdn2d"),
    }
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def registered_buffers(node: ast.ClassDef) -> dict[str, ast.Call]:
    """Return the buffers that a class registers by their names."""
    found: dict[str, ast.Call] = {}
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        is_one = isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer" and bool(call.args)
        if is_one and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
            found[call.args[0].value] = call
    return found


def kept_buffers(node: ast.ClassDef) -> Iterator[str]:
    """Yield the buffers that autograd keeps for the backward pass of a class's `forward`."""
    names = registered_buffers(node)
    forward = next((n for n in node.body if isinstance(n, _FUNCTIONS) and n.name == "forward"), None)
    if not names or forward is None:
        return
    for part in ast.walk(forward):
        given: list[ast.expr] = []
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult | ast.MatMult):
            given = [part.left, part.right]
        elif isinstance(part, ast.Call) and _called(part) in _KEEPING:
            given = [*part.args, *(k.value for k in part.keywords)]
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and _is_self(part.func.value):
            given = _looked_up(part)
        for inner in given:
            if isinstance(inner, ast.Attribute) and _is_self(inner.value) and inner.attr in names:
                yield inner.attr


def _looked_up(call: ast.Call) -> list[ast.expr]:
    """Return what a layer with the name of an embedding gets: it keeps the numbers that it looks up."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return [*call.args] if "emb" in name else []


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


# Ways to write into a tensor in place.
_WRITES = frozenset({"copy_", "add_", "sub_", "mul_", "lerp_", "scatter_add_", "index_add_", "index_copy_", "scatter_"})
# Statistics, as those of batch normalisation: what one rank has seen is an estimate of the same numbers.
_STATISTICS = re.compile(r"running|mean|var(?!i)|std|num_batches|norm|cent(?:er|re)|scale", re.I)

_OUTER = frozenset({"shape", "size", "ndim", "dtype", "device", "numel"})


def written_by_batch(node: ast.ClassDef) -> Iterator[tuple[str, ast.AST]]:
    """Yield the buffers that a forward pass of a class writes from its batch and reads, with the places."""
    names = {name for name in registered_buffers(node) if not _STATISTICS.search(name)}
    methods = {n.name: n for n in node.body if isinstance(n, _FUNCTIONS)}
    forward = methods.get("forward")
    if not names or forward is None:
        return
    called = {n.func.attr for n in ast.walk(forward) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    bodies = [forward, *(methods[name] for name in sorted(called & methods.keys()))]
    read = {name for body in bodies for name in names if _reads(body, name)}
    for body in bodies:
        batch = _from_batch(body)
        for part in ast.walk(body):
            name, given = _write(part)
            words = {name for value in given for name in _contents(value)}
            if name in read and words & batch:
                yield name, part


def _contents(value: ast.AST) -> Iterator[str]:
    """Yield the names whose contents a value is computed from: `len(keys)` and `keys.shape` only count."""
    is_length = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "len"
    if is_length or (isinstance(value, ast.Attribute) and value.attr in _OUTER):
        return
    if isinstance(value, ast.Name):
        yield value.id
    for inner in ast.iter_child_nodes(value):
        yield from _contents(inner)


def _write(node: ast.AST) -> tuple[str, list[ast.expr]]:
    """Return the field of the object that a piece of code writes into, and what it writes."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return _field(node.targets[0]), [node.value]
    if isinstance(node, ast.AugAssign):
        return _field(node.target), [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WRITES:
        base = node.func.value
        while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr in _WRITES:
            base = base.func.value  # x.mul_(decay).add_(batch)
        return _field(base), [*node.args]
    return "", []


def _field(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) and _is_self(node.value) else ""


def _from_batch(body: ast.AST) -> set[str]:
    """Return the arguments of a method, and the variables that are computed from them."""
    assert isinstance(body, _FUNCTIONS)
    found = {arg.arg for arg in (*body.args.args, *body.args.kwonlyargs)} - {"self"}
    for _ in range(3):
        for node in ast.walk(body):
            if isinstance(node, ast.Assign) and found & {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}:
                stored = [n for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
                found |= {n.id for n in stored if isinstance(n.ctx, ast.Store)}
    return found - {"self"}


def _reads(body: ast.AST, name: str) -> bool:
    """Return whether a method computes with a field, and does more than write into it."""
    writes = {id(n) for part in ast.walk(body) if _write(part)[0] == name for n in _targets(part)}
    # Its size and its place say nothing of what it holds.
    writes |= {id(n.value) for n in ast.walk(body) if isinstance(n, ast.Attribute) and n.attr in _OUTER}
    return any(
        isinstance(n, ast.Attribute) and n.attr == name and _is_self(n.value) and id(n) not in writes
        for n in ast.walk(body)
    )


def _targets(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a piece of code writes into, and what it reads only to write the same again."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        yield from ast.walk(node)
    elif isinstance(node, ast.Call):
        yield from ast.walk(node.func)
