"""What must hold for a statement of a module to run when the module is imported.

A condition is a text: ``transformers>=4.38`` (with ``!`` before it when it must not hold), ``available:peft``, ``try``
(a missing name is caught), or ``if:...`` with the test as it is written where it says nothing about releases.
"""

from __future__ import annotations

import ast
import re

_AVAILABLE = re.compile(r"_?is_([a-z0-9_]+?)_available$")
_COMPARED = re.compile(r"_?is_([a-z]+?)_(?:version|greater_or_equal|ge|lt|version_at_least)$")
_THAN = re.compile(
    r"_?is_([a-z]+?)_(?:greater_or_equal_than|greater_or_equal|ge|version_ge|less_than|lt)_(\d+(?:_\d+)*)$"
)
_VERSION_OF = re.compile(r"_?([a-z_]+?)_version(?:_parsed|_base)?$", re.I)
_MISSING = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException", "RuntimeError"}
_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_ALIASES = {"torch_core": "torch", "lightning_fabric": "lightning"}


def of_test(test: ast.expr) -> tuple[str, ...]:
    """The conditions that all hold where this test does."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return tuple(condition for value in test.values for condition in of_test(value))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return negated(of_test(test.operand))
    found = _call(test) or _name(test) or _comparison(test)
    return (found or "if:" + ast.unparse(test)[:80],)


def negated(conditions: tuple[str, ...]) -> tuple[str, ...]:
    """The condition of the other branch; of several that must all hold no more than that one of them does not."""
    if len(conditions) != 1:
        return ("if:not (" + " and ".join(conditions)[:80] + ")",)
    return (conditions[0][1:] if conditions[0].startswith("!") else "!" + conditions[0],)


def catches_missing(handler: ast.ExceptHandler) -> bool:
    """The handler runs when an import fails, and does not end the import of the module itself."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {"Exception" if each is None else ast.unparse(each).rsplit(".", 1)[-1] for each in types}
    return bool(names & _MISSING) and not isinstance(handler.body[-1], ast.Raise)


def _call(test: ast.expr) -> str | None:
    if not isinstance(test, ast.Call):
        return None
    name = _last(test.func)
    texts = [arg.value for arg in [*test.args, *(k.value for k in test.keywords)] if isinstance(arg, ast.Constant)]
    words = [str(text) for text in texts if isinstance(text, str)]
    match = _AVAILABLE.match(name)
    if match:
        library = _ALIASES.get(match[1], match[1])
        numbers = [word for word in words if word[:1].isdigit()]
        return f"{library}>={numbers[0]}" if numbers else f"available:{library}"
    match = _COMPARED.match(name)
    if match and words and words[-1][:1].isdigit():
        operator = words[0] if len(words) == 2 and not words[0][:1].isdigit() else "<" if name.endswith("lt") else ">="
        return f"{match[1]}{operator}{words[-1]}"
    if name == "compare_versions" and len(words) == 3:
        return "".join(words)
    if name in ("find_spec", "package_available", "_is_package_available") and words:
        return f"available:{words[0]}"
    return None


def _name(test: ast.expr) -> str | None:
    match = _THAN.match(_last(test))
    if match is None:
        return None
    operator = "<" if "_lt_" in match[0] or "less" in match[0] else ">="
    return f"{match[1]}{operator}{match[2].replace('_', '.')}"


def _comparison(test: ast.expr) -> str | None:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if isinstance(test.ops[0], (ast.Is, ast.IsNot)) and isinstance(test.left, ast.Call):
        found = _call(test.left)
        return found if found is None or isinstance(test.ops[0], ast.IsNot) else "!" + found
    operator = _OPERATORS.get(type(test.ops[0]))
    library, number = _library(test.left), _number(test.comparators[0])
    return f"{library}{operator}{number}" if operator and library and number else None


def _library(node: ast.expr) -> str | None:
    """The library whose version an expression is: ``version.parse(torch.__version__)``, ``_transformers_version``."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr == "__version__":
            return ast.unparse(inner.value).split(".")[0]
        argument = (
            inner.args[0] if isinstance(inner, ast.Call) and _last(inner.func) == "version" and inner.args else None
        )
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return argument.value
    for inner in ast.walk(node):
        # `version.parse(_torch_version)`, `parsed_version` is that of nobody.
        match = _VERSION_OF.match(_last(inner)) if isinstance(inner, (ast.Name, ast.Attribute)) else None
        if match and match[1] not in ("parsed", "package", "min", "base", "current"):
            return match[1].lower()
    return None


def _number(node: ast.expr) -> str | None:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value[:1].isdigit():
            return inner.value
    return None


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
