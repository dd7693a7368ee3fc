"""Special methods: what operators and builtin functions call on objects of the project's classes."""

from __future__ import annotations

import ast

from dslint.python import attributes
from dslint.python.binding import Arguments
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.values import NOTHING, OPAQUE, Api, Bound, ClassAtom, Function, Instance, Unknown, Value, one

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitOr: "or",
    ast.BitAnd: "and",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
}
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "__neg__", ast.UAdd: "__pos__", ast.Invert: "__invert__"}
# The method of the left side, and of the right side when the left has none.
_COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("__eq__", "__eq__"),
    ast.NotEq: ("__ne__", "__ne__"),
    ast.Lt: ("__lt__", "__gt__"),
    ast.LtE: ("__le__", "__ge__"),
    ast.Gt: ("__gt__", "__lt__"),
    ast.GtE: ("__ge__", "__le__"),
}
_ORDER = ("__lt__", "__gt__", "__le__", "__ge__")


def method_of(m: Machine, atom: object, name: str) -> Value | None:
    """Return the method that a class of the project defines for an object; `None` when none does."""
    if not isinstance(atom, Instance) or not isinstance(atom.cls, ClassAtom):
        return None
    found = attributes.of_class(m, atom.cls, name, atom)
    if found is None or not any(isinstance(a, Bound) and isinstance(a.function, Function) for a in found.atoms):
        return None
    return found


def has_own_objects(*values: Value) -> bool:
    """Return whether an operand may be an object of a class of the project."""
    return any(isinstance(a, Instance) and isinstance(a.cls, ClassAtom) for value in values for a in value.atoms)


def binary_method(
    m: Machine, op: type[ast.operator], left: Value, right: Value, node: ast.AST, *, in_place: bool = False
) -> Value | None:
    """Return the result of an operator that a class of the project defines; `None` when none does."""
    word = _BINARY.get(op)
    if word is None or not has_own_objects(left, right):
        return None
    names = [f"__i{word}__", f"__{word}__"] if in_place else [f"__{word}__"]
    return _either(m, left, right, names, f"__r{word}__", node)


def _either(m: Machine, left: Value, right: Value, names: list[str], reflected: str, node: ast.AST) -> Value | None:
    """Ask the left operand, then the right one where the left has no answer."""
    found = NOTHING
    rest: Value | None = left
    for name in names:
        answer, rest = _asked(m, rest, name, right, node) if rest is not None else (NOTHING, None)
        found = join(found, answer)
    if rest is not None:
        answer, left_over = _asked(m, right, reflected, rest, node)
        found = join(found, answer)
        if left_over is not None:
            if not found.atoms:
                return None
            found = join(found, m.thing(node, "result of an operation", (left, right)))
    return found if found.atoms else None


def _asked(m: Machine, value: Value, name: str, other: Value, node: ast.AST) -> tuple[Value, Value | None]:
    """Call a method of each object that has it; return the results, and the value where some had no answer."""
    from dslint.python.invoke import alternatives, call_value

    methods = [(atom, method_of(m, atom, name)) for atom in value.atoms]
    known = [method for _, method in methods if method is not None]
    if not known:
        return NOTHING, value
    runs = [lambda method=method: call_value(m, method, Arguments([other]), node) for method in known]
    found = alternatives(m, runs, value, node)  # type: ignore[arg-type]
    answers = frozenset(a for a in found.atoms if a != _NO_ANSWER)
    left_over = value if len(known) < len(methods) or len(answers) < len(found.atoms) else None
    kept = (
        Value(answers, found.varies | value.varies, found.shape, found.made_by, found.number, found.origin)
        if answers
        else NOTHING
    )
    return kept, left_over


_NO_ANSWER = Api("builtins.NotImplemented")


def compare_method(m: Machine, op: type[ast.cmpop], left: Value, right: Value, node: ast.AST) -> Value | None:
    """Return the result of a comparison of objects of the project's classes; `None` when it has no such operands."""
    from dslint.python.arithmetic import negated

    if op in (ast.In, ast.NotIn):
        found = call_special(m, right, "__contains__", [left], node)
        if found is None:
            return None
        answer = _truth(m, found)
        return answer if op is ast.In else negated(m, answer)
    if op not in _COMPARE or not has_own_objects(left, right):
        return None
    name, reflected = _COMPARE[op]
    found = _either(m, left, right, [name], reflected, node)
    if found is not None:
        return found
    if op is ast.NotEq:
        equal = _either(m, left, right, ["__eq__"], "__eq__", node)
        if equal is not None:
            return negated(m, equal)
    if op not in (ast.Eq, ast.NotEq):
        for other in _ORDER:  # `functools.total_ordering` makes them of one
            if _either(m, left, right, [other], other, node) is not None:
                break
    varies = m.deep_varies(left) | m.deep_varies(right)
    return Value(frozenset((Unknown(OPAQUE, "comparison of objects", "builtins.bool"),)), varies)


def _truth(m: Machine, value: Value) -> Value:
    from dslint.python.arithmetic import truth_value

    return truth_value(m, value)


def unary_method(m: Machine, op: type[ast.unaryop], operand: Value, node: ast.AST) -> Value | None:
    """Return the result of `-x` and the like that a class of the project defines."""
    return call_special(m, operand, _UNARY[op], [], node) if op in _UNARY else None


def call_special(m: Machine, value: Value, name: str, arguments: list[Value], node: ast.AST) -> Value | None:
    """Call a special method on each object that may be there; `None` when no class of the project defines it.

    Where other things may be there too, the result is joined with an unknown one.
    """
    from dslint.python.invoke import alternatives, call_value

    methods = [method_of(m, atom, name) for atom in value.atoms]
    known = [method for method in methods if method is not None]
    if not known:
        return None
    runs = [lambda method=method: call_value(m, method, Arguments(list(arguments)), node) for method in known]
    found = alternatives(m, runs, value, node)  # type: ignore[arg-type]
    if len(known) < len(methods):
        found = join(found, m.thing(node, f"`{name}` of another object", (value, *arguments)))
    return found.with_(value.varies)


def text_of(m: Machine, value: Value, node: ast.AST, name: str = "__str__") -> Value | None:
    """Return `str(x)` or `repr(x)` for objects of the project's classes, elements of containers included."""
    found = call_special(m, value, name, [], node) if has_own_objects(value) else None
    if found is None and name == "__str__" and has_own_objects(value):
        found = call_special(m, value, "__repr__", [], node)
    for atom in value.atoms:
        for item in _inner(m, atom):
            if has_own_objects(item):
                call_special(m, item, "__repr__", [], node)
    if found is None and has_own_objects(value):
        atom = Unknown(OPAQUE, "text of an object", "builtins.str")
        return Value(frozenset((atom,)), m.deep_varies(value) | _address(m, value))
    return found


def _address(m: Machine, value: Value) -> int:
    from dslint.python.enums import is_enum
    from dslint.python.objects import is_dataclass
    from dslint.python.varies import HOST

    for atom in value.atoms:
        if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
            order = attributes.lineage(m, atom.cls)
            if len(order) == 1 and not is_dataclass(m, atom.cls) and not is_enum(m, atom.cls):
                return HOST  # the default text names the address
    return 0


def _inner(m: Machine, atom: object) -> list[Value]:
    from dslint.python.values import Tuple

    if isinstance(atom, Tuple):
        return list(atom.items)
    return m.elements(atom) if isinstance(atom, Instance) and isinstance(atom.cls, str) else []


def called(m: Machine, value: Value, name: str, node: ast.AST) -> Value | None:
    """Return `name(value)` for builtin functions that call a special method of one argument: `abs`, `hash`, `int`."""
    return call_special(m, value, f"__{name}__", [], node)


__all__ = [
    "binary_method",
    "call_special",
    "called",
    "compare_method",
    "has_own_objects",
    "method_of",
    "one",
    "text_of",
    "unary_method",
]
