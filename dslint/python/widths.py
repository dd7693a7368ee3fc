"""How wide a part of a tensor is: `x[:, start:start + width]` is `width` wide, wherever each rank begins.

A tensor knows for which causes its shape may differ, and not in which dimension. Where one of them is cut to a width
that no rank's own data decide, nobody knows whether the shapes still differ.
"""

from __future__ import annotations

import ast

from dslint.python import ragged
from dslint.python.heap import CONTENT
from dslint.python.machine import Machine
from dslint.python.operators import BINARY
from dslint.python.values import FALSE, TRUE, Const, Instance, Tuple, Value
from dslint.python.varies import DIVERGENT, LOST, OWN, RANKED

_CUT = "#cut"
_OPERATORS = (ast.Add, ast.Sub, ast.Mult)
_TERMS = frozenset((*_OPERATORS, *(BINARY[op] for op in _OPERATORS)))


def is_cut(m: Machine, lower: Value | None, upper: Value | None, node: ast.AST) -> bool:
    """Return whether `a:b` is as wide as something else than each rank's own data says."""
    if upper is None or upper.constants == (None,):
        return lower is not None and _is_from_end(lower, node) and not m.varies(lower) & DIVERGENT
    if isinstance(upper.single, Const) and not _is_place(upper.single.value):
        return False
    own = m.varies(upper) & DIVERGENT
    if lower is None or not m.varies(lower) & DIVERGENT:
        return not own
    return bool(own) and moves_as_one(m, lower, upper, node)


def _is_place(value: object) -> bool:
    """Return whether a constant end counts from the start: `x[:-1]` and `x[:]` are as long as `x`."""
    return isinstance(value, int) and value >= 0


def _is_from_end(lower: Value, node: ast.AST) -> bool:
    """Return whether a slice takes so many from the end: `x[-width:]`."""
    inner = node.slice if isinstance(node, ast.Subscript) else node
    start = inner.lower if isinstance(inner, ast.Slice) else None
    is_counted = isinstance(lower.single, Const) and isinstance(lower.single.value, int) and lower.single.value < 0
    return is_counted or (isinstance(start, ast.UnaryOp) and isinstance(start.op, ast.USub))


def moves_as_one(m: Machine, lower: Value, upper: Value, node: ast.AST) -> bool:
    """Return whether both ends of a slice are computed from the same number that is no share of a rank."""
    if (m.varies(lower) | m.varies(upper)) & RANKED or not m.varies(lower) & OWN:
        return False
    if _share_a_name(m, node.slice if isinstance(node, ast.Subscript) else node):
        return True
    terms = _terms(m, upper)
    # Two draws of one function are the same to us, unless the end is computed from the start.
    return upper.single not in terms and bool(_terms(m, lower) & terms)


def _share_a_name(m: Machine, node: ast.AST) -> bool:
    """Return whether both ends are written with one name of which each rank has its own number."""
    from dslint.python.expressions import evaluate

    if not isinstance(node, ast.Slice) or node.lower is None or node.upper is None:
        return False
    first, second = _names(node.lower), _names(node.upper)
    return any(m.varies(evaluate(m, first[name])) & OWN for name in first if name in second)


def _names(node: ast.expr) -> dict[str, ast.Name]:
    """Return the names of which a sum, a difference or a product is made."""
    found: dict[str, ast.Name] = {}
    todo = [node]
    while todo:
        inner = todo.pop()
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, _OPERATORS):
            todo += (inner.left, inner.right)
        elif isinstance(inner, ast.Name):
            found[inner.id] = inner
    return found


def _terms(m: Machine, value: Value) -> set[object]:
    """Return the unknown numbers of which a sum, a difference or a product is made."""
    found: set[object] = set()
    seen: set[object] = {None}
    todo: list[object] = [value.number if value.number is not None else value.single]
    while todo:
        number = todo.pop()
        if number in seen or isinstance(number, Const):
            continue
        seen.add(number)
        parts = m.computed.get(number, number)
        if isinstance(parts, tuple) and len(parts) == 2 and isinstance(parts[1], tuple) and _is_operator(parts[0]):
            todo += parts[1]
        else:
            found.add(number)
    return found


def _is_operator(function: object) -> bool:
    return callable(function) and function in _TERMS


def slice_of(m: Machine, node: ast.Slice) -> Value:
    """Return a slice beside other indices, `x[0, :, a:b]`, and note whether it cuts."""
    from dslint.python.expressions import evaluate

    parts = [evaluate(m, p) for p in (node.lower, node.upper, node.step) if p is not None]
    lower = parts[0] if node.lower is not None else None
    upper = parts[node.lower is not None] if node.upper is not None else None
    made = m.thing(node, "slice", parts, "builtins.slice")
    if is_cut(m, lower, upper, node):
        m.store.set((made.single, _CUT), TRUE)
    elif m.store.get((made.single, _CUT)) is not None:
        m.store.set((made.single, _CUT), FALSE)  # in another turn of a loop it did
    return ragged.bounded(m, upper, made, node)


def part(m: Machine, key: Value, found: Value, node: ast.AST) -> Value:
    """Return `base[key]`, of which nobody knows whether its shape differs where one of the indices cuts."""
    items = key.single.items if isinstance(key.single, Tuple) else (key,)
    cuts = [m.store.get((item.single, _CUT)) for item in items if isinstance(item.single, Instance)]
    return cut(m, found, node) if any(c is not None and c.constants == (True,) for c in cuts) else found


def cut(m: Machine, found: Value, node: ast.AST) -> Value:
    """Return a part that `node` has made, of which nobody knows whether its shape differs between the ranks."""
    for atom in found.atoms:
        content = m.content(atom) if isinstance(atom, Instance) and atom.node is node else None
        if content is not None and content.shape & DIVERGENT:
            shape = content.shape & ~DIVERGENT | LOST
            kept = Value(content.atoms, content.varies, shape, content.made_by, content.number, content.origin)
            m.store.set((atom, CONTENT), kept)
    return found


def joined(m: Machine, tensors: Value | None) -> int:
    """Return whether a tensor that is joined of others has a lost shape, as `LOST`: `torch.stack(clips)`."""
    found = 0
    for atom in tensors.atoms if tensors is not None else ():
        items = m.elements(atom) if isinstance(atom, Instance) else atom.items if isinstance(atom, Tuple) else ()
        for item in items:
            found |= m.shape(item) & LOST
    return found


def sized(m: Machine, size: Value | None, shape: int) -> int:
    """Return how a shape differs of which one dimension gets a size: `torch.narrow(x, 0, start, width)`."""
    if size is None or size.constants == (None,) or not shape & DIVERGENT or m.varies(size) & DIVERGENT:
        return shape
    return shape & ~DIVERGENT | LOST


def asked(m: Machine, name: str, varies: int, shape: int) -> int:
    """Return how a field of something without a class differs that only tells a lost shape: `clip.shape`, `clip.size`.

    What tensors have such a field for is their shape, whatever is in them.
    """
    rows = (
        row for cls in m.libraries.lineage("torch.Tensor") for row in (cls.properties.get(name), cls.methods.get(name))
    )
    is_shape = any(row is not None and row.extra.get("shape_of") == "self" for row in rows)
    return varies & ~DIVERGENT | shape & LOST if is_shape else varies
