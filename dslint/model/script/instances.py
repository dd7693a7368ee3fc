"""Methods of objects whose class stands in the same file: ``bench = Bench(); bench.step()``, ``self.saver.save()``."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import is_self, last_name

if TYPE_CHECKING:
    from dslint.model.script.names import Names

# An object may be handed on from function to function: as far as this it is followed back.
_MAX_STEPS = 4
_OPTIONAL = frozenset({"typing.Optional", "Optional"})


class Instances:
    """Finds the method that a call of one module runs on an instance of a class of this module.

    The receiver is certainly such an instance: a variable, attribute or parameter that holds nothing else (but
    ``None``, on which the call would fail), by the calls that make it, or by its annotation.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._tree = names.tree
        self._found: dict[int, cst.FunctionDef | None] = {}

    def method(self, node: cst.Attribute) -> cst.FunctionDef | None:
        """The method that ``x.method`` means; ``None`` where the class of ``x`` is open."""
        if node.attr.value not in self._methods:
            return None
        key = id(node)
        if key not in self._found:
            self._found[key] = None  # what is asked for on the way to its own answer is not known
            owner = self._class_of(node.value, 0)
            self._found[key] = self._member(owner, node.attr.value) if owner is not None else None
        return self._found[key]

    @cached_property
    def _methods(self) -> frozenset[str]:
        """The names of all methods of the module: most calls of attributes have another."""
        bodies = (owner.body.body for owner in self._tree.every(cst.ClassDef))
        return frozenset(n.name.value for body in bodies for n in body if isinstance(n, cst.FunctionDef))

    def _member(self, owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        bases = (self._names.local_class(b) for b in self._names.class_bases(owner.name.value) if "." not in b)
        for holder in (owner, *filter(None, bases)):
            found = self._names.member(holder, name)
            if found is not None:
                is_value = any(last_name(d.decorator).endswith("property") for d in found.decorators)
                return None if is_value else found
        return None

    def _class_of(self, value: cst.CSTNode | None, steps: int) -> cst.ClassDef | None:
        """The one class whose instance an expression certainly is."""
        if steps > _MAX_STEPS:
            return None
        if isinstance(value, cst.Call):
            called = value.func
            return self._names.local_class(called.value, called) if isinstance(called, cst.Name) else None
        if isinstance(value, cst.Name):
            found = self._names.bindings(value.value, value)
        elif isinstance(value, cst.Attribute) and is_self(value.value):
            found = self._names.attribute_bindings(value)
        else:
            return None
        # ``del`` takes a variable away, and on ``None`` no method is called.
        found = [
            b for b in found if b.kind == "param" or not (_is_none(b.value) or (b.kind == "other" and not b.value))
        ]
        classes = [self._bound(b, steps + 1) for b in found]
        return classes[0] if classes and all(c is classes[0] for c in classes) else None

    def _bound(self, binding: Binding, steps: int) -> cst.ClassDef | None:
        if binding.kind == "assign":
            return self._class_of(binding.value, steps)
        if binding.kind != "param" or not isinstance(binding.node, cst.Param):
            return None
        return self._passed(binding.node, steps) or self._annotated(binding.node)

    def _annotated(self, param: cst.Param) -> cst.ClassDef | None:
        """``saver: Saver``, ``Optional[Saver]``, ``"Saver"``, where no class of the file derives from it."""
        said = param.annotation.annotation if param.annotation is not None else None
        if isinstance(said, cst.Subscript) and len(said.slice) == 1 and self._names.qualified(said.value) in _OPTIONAL:
            index = said.slice[0].slice
            said = index.value if isinstance(index, cst.Index) else None
        if isinstance(said, cst.BinaryOperation) and isinstance(said.operator, cst.BitOr):
            said = said.left if _is_none(said.right) else said.right if _is_none(said.left) else None
        name = said.value if isinstance(said, cst.Name) else ""
        if isinstance(said, cst.SimpleString):
            name = str(said.evaluated_value)
        owner = self._names.local_class(name) if name else None
        derived = any(name in self._names.class_bases(other.name.value) for other in self._tree.every(cst.ClassDef))
        return None if derived else owner

    def _passed(self, param: cst.Param, steps: int) -> cst.ClassDef | None:
        classes = [self._class_of(value, steps) for value in self.passed(param) if not _is_none(value)]
        return classes[0] if classes and all(c is classes[0] for c in classes) else None

    def passed(self, param: cst.Param) -> list[cst.BaseExpression | None]:
        """What the calls of the function around, by its name, pass for a parameter; ``None`` where that is open."""
        function = self._tree.function(param)
        calls = self._calls.get(id(function), []) if function is not None else []
        return [self._given(call, function, param.name.value) for call in calls] if function is not None else []

    def _given(self, call: cst.Call, function: cst.FunctionDef, name: str) -> cst.BaseExpression | None:
        params = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
        params = params[1:] if params[:1] == ["self"] else params
        if any(arg.star for arg in call.args):
            return None
        for index, arg in enumerate(call.args):
            if (arg.keyword.value if arg.keyword else params[index] if index < len(params) else "") == name:
                return arg.value
        param = next(
            (p for p in (*function.params.params, *function.params.kwonly_params) if p.name.value == name), None
        )
        return param.default if param is not None else None

    @cached_property
    def _calls(self) -> dict[int, list[cst.Call]]:
        """The calls of the functions of the module by their names, and of ``__init__`` by those of the classes."""
        found: dict[int, list[cst.Call]] = {}
        for call in self._tree.every(cst.Call):
            if isinstance(call.func, cst.Name):
                owner = self._names.local_class(call.func.value, call)
                called = self._names.member(owner, "__init__") if owner is not None else None
                called = called or self._names.function_named(call.func)
                if called is not None:
                    found.setdefault(id(called), []).append(call)
        return found


def _is_none(value: cst.CSTNode | None) -> bool:
    return isinstance(value, cst.Name) and value.value == "None"
