"""The types of the fields of dataclasses, as parsers that make an option of each field read them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

_PLAIN = ("int", "float", "str", "bool")
_LISTS = ("list", "List", "typing.List")


@dataclass(frozen=True, slots=True)
class FieldType:
    """What a type makes of words: the name of a plain converter, `nargs`, and the choices; `is_read`: it is known."""

    converter: str = ""
    nargs: str | None = None
    choices: tuple[object, ...] | None = None
    is_read: bool = True
    may_be_none: bool = False


def type_of(annotation: ast.expr) -> FieldType | None:
    """Return what a parser makes of the type of a field; `None` for what is no field."""
    node = _unquoted(annotation)
    if node is None:
        return None
    text = ast.unparse(node)
    if "ClassVar" in text or text.endswith("KW_ONLY"):
        return None
    may_be_none = "Optional" in text or "None" in text
    inner = _without_none(node)
    name = ast.unparse(inner)
    if name in _PLAIN:
        return FieldType(name, "?" if name == "bool" else None, may_be_none=may_be_none)
    if not isinstance(inner, ast.Subscript):
        is_read = isinstance(inner, ast.Name | ast.Attribute) and name not in ("list", "List")
        return FieldType(is_read=is_read, may_be_none=may_be_none)
    outer = ast.unparse(inner.value)
    if outer in _LISTS:
        item = ast.unparse(inner.slice)
        return FieldType(item if item in ("int", "float", "str") else "", "+", may_be_none=may_be_none)
    if outer.rpartition(".")[2] == "Literal":
        items = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
        values = [item.value for item in items if isinstance(item, ast.Constant)]
        return FieldType(choices=tuple(values) if len(values) == len(items) else None, may_be_none=may_be_none)
    return FieldType(is_read=False, may_be_none=may_be_none)


def named(annotation: ast.expr) -> ast.expr | None:
    """Return the name of the class that a type is, without `Optional`; `None` for any other type."""
    node = _unquoted(annotation)
    inner = _without_none(node) if node is not None else None
    return inner if isinstance(inner, ast.Name | ast.Attribute) else None


def _unquoted(node: ast.expr) -> ast.expr | None:
    """Return the type in a text: `"Optional[int]"`."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return node
    try:
        return ast.parse(node.value, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _without_none(node: ast.expr) -> ast.expr:
    """Return X of `Optional[X]`, `Union[X, None]` and `X | None`."""
    outer = ast.unparse(node.value).rpartition(".")[2] if isinstance(node, ast.Subscript) else ""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Subscript) and outer == "Optional":
        return _unquoted(node.slice) or node
    if isinstance(node, ast.Subscript) and outer == "Union":
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [node.left, node.right]
    rest = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]
    return rest[0] if len(rest) == 1 and len(parts) == 2 else node
