"""The type of the numbers in a tensor, as the code writes it: `torch.zeros(n)`, `x.long()`, `x.to(torch.int32)`."""

from __future__ import annotations

import ast

_FLOATS = frozenset(("zeros", "ones", "empty", "rand", "randn", "linspace", "eye"))
_WHOLE = frozenset(("arange", "randperm", "randint", "full", "tensor", "as_tensor"))
_METHODS = {
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "byte": "uint8",
    "bool": "bool",
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
}
_KEEPS = frozenset(
    ("to", "cuda", "cpu", "clone", "contiguous", "view", "reshape", "flatten", "detach", "unsqueeze", "squeeze", "copy")
)
_NAMES = {
    "long": "int64",
    "int": "int32",
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "float_": "float64",
}
_TYPE = frozenset(("int64", "int32", "int16", "int8", "uint8", "bool", "float32", "float64", "float16", "bfloat16"))
# What numpy gives without a word of a type.
_NUMPY = {
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn", "random", "normal", "uniform", "linspace"), "float64"),
    **dict.fromkeys(("permutation",), "int64"),
}
# Numbers of clusters in the estimators of scikit-learn: of 4 or 8 bytes.
_WHOLE_NUMBERS = "whole numbers"
_FIELDS = {"labels_": _WHOLE_NUMBERS}


def dtype_of(node: ast.AST) -> str:
    """Return the type of the numbers of an expression; empty where nobody knows."""
    if isinstance(node, ast.Attribute):
        return _FIELDS.get(node.attr, "")
    if not isinstance(node, ast.Call):
        return ""
    told = next((keyword.value for keyword in node.keywords if keyword.arg == "dtype"), None)
    if told is not None:
        return _named(told)
    func = node.func
    if not isinstance(func, ast.Attribute):
        return ""
    owner = ast.unparse(func.value)
    if owner == "torch":
        return _of_torch(func.attr, node)
    if owner in ("np", "numpy", "np.random", "numpy.random"):
        return _NUMPY.get(func.attr, "") if len(node.args) < 2 or ".random" in owner else ""
    if func.attr in _METHODS:
        return _METHODS[func.attr]
    if func.attr == "astype":
        return _named(node.args[0]) if node.args else ""
    named = [_named(argument) for argument in node.args if _named(argument)] if func.attr == "to" else []
    return named[0] if named else dtype_of(func.value) if func.attr in _KEEPS else ""


def are_other(one: str, other: str) -> bool:
    """Return whether two types certainly are not the same."""
    if not one or not other or _WHOLE_NUMBERS not in (one, other):
        return bool(one and other) and one != other
    return "float" in one + other


def _of_torch(word: str, node: ast.Call) -> str:
    if word in _FLOATS:
        return "float32"
    if word == "from_numpy":
        return dtype_of(node.args[0]) if node.args else ""
    if word in ("randperm", "randint"):
        return "int64"
    if word in _WHOLE and node.args:
        numbers = [n.value for n in ast.walk(node.args[-1]) if isinstance(n, ast.Constant)]
        is_literal = all(isinstance(n, ast.Constant | ast.List | ast.Tuple | ast.Load) for n in ast.walk(node.args[-1]))
        if is_literal and numbers and all(type(n) is int for n in numbers):
            return "int64"
        if is_literal and any(isinstance(n, float) for n in numbers):
            return "float32"
    return ""


def _named(node: ast.AST) -> str:
    word = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else ""
    is_type = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("torch", "np", "numpy")
    word = _NAMES.get(str(word), str(word)) if is_type or isinstance(node, ast.Constant) else ""
    return word if word in _TYPE else ""
