"""The value of an expression, where the file itself states it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import libcst as cst

from dslint.core.fact import Fact, known, unknown
from dslint.model.script.arguments import Argument, Arguments
from dslint.model.script.given import given, items_of
from dslint.model.script.names import Names
from dslint.parse.python import ScriptDoc

_MAX_STEPS = 12
_LARGEST = 1 << 63
_LONGEST = 10_000
_NAMED = {"True": True, "False": False, "None": None}
_BINARY: dict[type[cst.BaseBinaryOp], Callable[[Any, Any], Any]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.Divide: operator.truediv,
    cst.FloorDivide: operator.floordiv,
    cst.Modulo: operator.mod,
}
_CONVERTERS: dict[str, Callable[[Any], object]] = {"int": int, "float": float, "str": str, "bool": bool}
_NUMBER = (int, float)
_NAMESPACES = frozenset({"types.SimpleNamespace", "argparse.Namespace"})


class Constants:
    """Evaluates expressions of one module without running anything.

    ``stated`` are the arguments that launch commands pass, by destination name: they win over defaults.
    """

    def __init__(self, doc: ScriptDoc, names: Names, stated: Mapping[str, Fact[str]]) -> None:
        self._doc = doc
        self._names = names
        self._stated = stated
        self._arguments: Arguments | None = None
        self._literals: list[cst.CSTNode] = []

    @property
    def arguments(self) -> Arguments:
        """What the file declares on its command line."""
        if self._arguments is None:
            self._arguments = Arguments(self._names)
        return self._arguments

    def value(self, node: cst.CSTNode | None, *, origins: bool = False) -> Fact[object]:
        """The value of an expression; with ``origins`` the fact also says where it is written."""
        if node is None:
            return unknown("there is no expression")
        self._literals.clear()
        fact = self._value(node, 0)
        if not (origins and fact.is_known):
            return fact
        # The literals behind the value, or the whole expression when it is a table of many.
        literals = self._literals if isinstance(fact.value, int | float | str) else [node]
        places = (*fact.origins, *dict.fromkeys(self._doc.location(literal) for literal in literals))
        return Fact("known", fact.value, places or (self._doc.location(node),))

    def likely(self, node: cst.CSTNode | None) -> Fact[object]:
        """The value of an expression; of a parameter its default, which a caller may replace."""
        fact = self.value(node)
        found = self._names.bindings(node.value, node) if isinstance(node, cst.Name) and not fact.is_known else []
        return self.value(found[0].value) if len(found) == 1 and found[0].kind == "param" else fact

    def _value(self, node: cst.CSTNode, steps: int) -> Fact[object]:
        if steps > _MAX_STEPS:
            return unknown("the value takes too many steps")
        evaluate = _EVALUATORS.get(type(node))
        return evaluate(self, node, steps + 1) if evaluate else unknown("not a constant expression")

    def _number(self, node: cst.Integer | cst.Float, _steps: int) -> Fact[object]:
        self._literals.append(node)
        try:
            return known(ast.literal_eval(node.value))
        except (ValueError, SyntaxError):
            return unknown("the number cannot be read")

    def _string(self, node: cst.SimpleString | cst.ConcatenatedString, _steps: int) -> Fact[object]:
        self._literals.append(node)
        try:
            value = node.evaluated_value
        except (ValueError, SyntaxError):
            value = None
        return known(value) if isinstance(value, str | bytes) else unknown("the text is computed")

    def _name(self, node: cst.Name, steps: int) -> Fact[object]:
        if node.value in _NAMED:
            return known(_NAMED[node.value])
        found = self._names.bindings(node.value, node)
        if len(found) != 1:
            return unknown(f"`{node.value}` has {'several values' if found else 'no value in this file'}")
        if found[0].kind == "assign" and found[0].value is not None:
            value = found[0].value
            is_table = isinstance(value, cst.Dict) or (
                isinstance(value, cst.Call) and self._names.called(value) == "dict"
            )
            items = items_of(node, self._names) if is_table else {}
            if items is None or (is_table and items != items_of(value, self._names)):
                return unknown(f"`{node.value}` may be changed")
            return self._value(value, steps)
        return unknown(f"`{node.value}` is not a constant")

    def _attribute(self, node: cst.Attribute, steps: int) -> Fact[object]:
        argument = self.arguments.at(node)
        if argument is not None:
            return self._argument(argument, steps)
        value = self._names.single_value(node) or self._of_class(node) or self._of_namespace(node)
        return self._value(value, steps) if value is not None else unknown("an attribute of an object")

    def _of_class(self, node: cst.Attribute) -> cst.BaseExpression | None:
        """``Settings.timeout`` of a class of the file, where nobody sets such an attribute later."""
        is_set = node.attr.value in self.arguments.rewritten or self.arguments.is_open(node.value)
        return None if is_set else self._names.class_value(node)

    def _of_namespace(self, node: cst.Attribute) -> cst.BaseExpression | None:
        """``settings = SimpleNamespace(timeout=30)``, whose attributes nobody sets later."""
        made: cst.BaseExpression | None = node.value
        for _ in range(_MAX_STEPS):
            if not isinstance(made, cst.Name):
                break
            if self.arguments.is_open(made):
                return None
            made = self._names.single_value(made)
        is_plain = isinstance(made, cst.Call) and self._names.qualified(made.func) in _NAMESPACES
        if not is_plain or not isinstance(made, cst.Call) or node.attr.value in self.arguments.rewritten:
            return None
        return given(self._names, made).argument(node.attr.value)

    def _subscript(self, node: cst.Subscript, steps: int) -> Fact[object]:
        """``SETTINGS["timeout"]`` of a dictionary that nothing changes."""
        index = node.slice[0].slice if len(node.slice) == 1 else None
        items = items_of(node.value, self._names) if isinstance(node.value, cst.Name) else None
        key = self._value(index.value, steps).get_or(None) if isinstance(index, cst.Index) else None
        value = items.get(key) if items is not None and isinstance(key, str) else None
        return self._value(value, steps) if value is not None else unknown("an item of a table")

    def _argument(self, argument: Argument, steps: int) -> Fact[object]:
        stated = self._stated.get(argument.name)
        if stated is not None:
            return _converted(stated, argument.converter)
        if argument.default is None:
            return unknown(f"`{argument.name}` comes from the command line")
        return self._value(argument.default, steps)

    def _unary(self, node: cst.UnaryOperation, steps: int) -> Fact[object]:
        fact = self._value(node.expression, steps)
        if isinstance(node.operator, cst.Not):
            return fact.map(lambda v: not v)
        if isinstance(node.operator, cst.Minus) and isinstance(fact.value, _NUMBER):
            return known(-fact.value, *fact.origins)
        return unknown("not a number") if fact.is_known else fact

    def _binary(self, node: cst.BinaryOperation, steps: int) -> Fact[object]:
        left, right = self._value(node.left, steps), self._value(node.right, steps)
        for side in (left, right):
            if not side.is_known:
                return side
        compute = _BINARY.get(type(node.operator))
        a, b = left.value, right.value
        if isinstance(a, list) and isinstance(b, int) and isinstance(node.operator, cst.Multiply):
            # ``["a"] * 6``
            return known(a * b, *left.origins) if len(a) * b <= _LONGEST else unknown("the list is too long")
        both_text = isinstance(a, str) and isinstance(b, str) and isinstance(node.operator, cst.Add)
        if compute is None or not (both_text or (isinstance(a, _NUMBER) and isinstance(b, _NUMBER))):
            return unknown("the arithmetic is not followed")
        try:
            value = compute(a, b)
        except (ArithmeticError, ValueError):
            return unknown("the arithmetic fails")
        if isinstance(value, int) and abs(value) > _LARGEST:
            return unknown("the number is too large")
        return known(value, *left.origins, *right.origins)

    def _choice(self, node: cst.IfExp, steps: int) -> Fact[object]:
        arms = self._value(node.body, steps), self._value(node.orelse, steps)
        test = self._value(node.test, steps)
        if test.is_known:
            return arms[0] if test.value else arms[1]
        same = arms[0].is_known and arms[1].is_known and arms[0].value == arms[1].value
        return arms[0] if same else unknown("the value depends on a condition")

    def _sequence(self, node: cst.Tuple | cst.List, steps: int) -> Fact[object]:
        items = []
        for element in node.elements:
            fact = self._value(element.value, steps)
            if not fact.is_known or isinstance(element, cst.StarredElement):
                return unknown("an item is not a constant")
            items.append(fact.value)
        return known(tuple(items) if isinstance(node, cst.Tuple) else items)

    def _dict(self, node: cst.Dict, steps: int) -> Fact[object]:
        items: dict[object, object] = {}
        for element in node.elements:
            if not isinstance(element, cst.DictElement):
                return unknown("a dict is unpacked")
            key, value = self._value(element.key, steps), self._value(element.value, steps)
            if not (key.is_known and value.is_known and isinstance(key.value, str | int | float | bool | None)):
                return unknown("an item is not a constant")
            items[key.value] = value.value
        return known(items)

    def _call(self, node: cst.Call, steps: int) -> Fact[object]:
        name = self._names.qualified(node.func)
        if name in _CONVERTERS and len(node.args) == 1 and not node.args[0].star:
            return _converted(self._value(node.args[0].value, steps), name)
        if name == "dict" and node.args and all(a.keyword is not None for a in node.args):
            items = {a.keyword.value: self._value(a.value, steps) for a in node.args if a.keyword is not None}
            if all(fact.is_known for fact in items.values()):
                return known({key: fact.value for key, fact in items.items()})
        return unknown("the result of a call")


def _converted(fact: Fact[Any], converter: str) -> Fact[object]:
    if not fact.is_known or not converter:
        return fact
    convert = _CONVERTERS.get(converter)
    if convert is None or (converter == "bool" and isinstance(fact.value, str)):
        return unknown(f"converted by `{converter}`")
    try:
        return known(convert(fact.value), *fact.origins)
    except (TypeError, ValueError, OverflowError):
        return unknown("the conversion fails")


_EVALUATORS: dict[type[cst.CSTNode], Callable[[Constants, Any, int], Fact[object]]] = {
    cst.Integer: Constants._number,
    cst.Float: Constants._number,
    cst.SimpleString: Constants._string,
    cst.ConcatenatedString: Constants._string,
    cst.Name: Constants._name,
    cst.Attribute: Constants._attribute,
    cst.UnaryOperation: Constants._unary,
    cst.BinaryOperation: Constants._binary,
    cst.IfExp: Constants._choice,
    cst.Tuple: Constants._sequence,
    cst.List: Constants._sequence,
    cst.Dict: Constants._dict,
    cst.Call: Constants._call,
    cst.Subscript: Constants._subscript,
}
