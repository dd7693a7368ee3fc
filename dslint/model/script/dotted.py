"""Names and literals as they are written: ``a.b.c``, ``self``, ``None``; what they mean is told by :mod:`names`."""

from __future__ import annotations

import libcst as cst


def is_self(node: cst.CSTNode) -> bool:
    """``self`` or ``cls``."""
    return type(node) is cst.Name and node.value in ("self", "cls")


def is_super(node: cst.CSTNode) -> bool:
    """A call of ``super``."""
    return type(node) is cst.Call and type(node.func) is cst.Name and node.func.value == "super"


def dotted(node: cst.CSTNode | None) -> str | None:
    """The text of a plain dotted name: ``a.b.c``."""
    parts: list[str] = []
    while type(node) is cst.Attribute:
        parts.append(node.attr.value)
        node = node.value
    if type(node) is not cst.Name:
        return None
    return ".".join([node.value, *reversed(parts)])


def last_name(node: cst.CSTNode | None) -> str:
    """``a.b.c`` and ``f().c`` -> ``c``; a bare name is itself."""
    if type(node) is cst.Attribute:
        return node.attr.value
    return node.value if type(node) is cst.Name else ""


def is_none(node: cst.CSTNode | None) -> bool:
    """``None``, written out."""
    return type(node) is cst.Name and node.value == "None"


def literal_text(node: cst.CSTNode | None) -> str:
    """The value of a string in one piece; empty for anything else."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""


def keyword(call: cst.Call, name: str) -> cst.BaseExpression | None:
    """What a call passes as ``name=``."""
    return next((a.value for a in call.args if a.keyword is not None and a.keyword.value == name), None)


def is_true(call: cst.Call, name: str) -> bool:
    """The call passes ``name=True``."""
    value = keyword(call, name)
    return type(value) is cst.Name and value.value == "True"


def is_main_test(test: cst.CSTNode) -> bool:
    """``__name__ == "__main__"``."""
    return isinstance(test, cst.Comparison) and any(
        isinstance(side, cst.Name) and side.value == "__name__"
        for side in (test.left, *(part.comparator for part in test.comparisons))
    )
