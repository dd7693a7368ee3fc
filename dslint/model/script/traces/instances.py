"""Methods of objects whose class stands in the same file: ``bench = Bench(); bench.step()``."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree


class Instances:
    """Finds the method that a call of one module runs."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._callers: dict[int, list[cst.Call]] | None = None

    def method(self, call: cst.Call) -> cst.FunctionDef | None:
        """The method of a class of this file, when the receiver is certainly an instance of it."""
        func = call.func
        if type(func) is not cst.Attribute or type(func.value) is not cst.Name:
            return None
        owner = self._class_of(func.value)
        body = owner.body.body if owner is not None else ()
        return next((n for n in body if type(n) is cst.FunctionDef and n.name.value == func.attr.value), None)

    def _class_of(self, name: cst.Name) -> cst.ClassDef | None:
        found = self._given(name)
        if len(found) != 1:
            return None
        if found[0].kind == "assign":
            return self._made(found[0].value)
        return self._passed(name) if found[0].kind == "param" else None

    def _given(self, name: cst.Name) -> list[Binding]:
        """Where the variable gets a value; ``del`` takes it away and counts for nothing."""
        return [b for b in self._names.bindings(name.value, name) if b.kind != "other" or b.value is not None]

    def _made(self, value: cst.BaseExpression | None) -> cst.ClassDef | None:
        """``Bench(...)``."""
        called = value.func if type(value) is cst.Call else None
        return self._names.local_class(called.value, called) if type(called) is cst.Name else None

    def _passed(self, name: cst.Name) -> cst.ClassDef | None:
        """What the only call of the function around passes for this parameter."""
        function = self._tree.function(name)
        calls = self._calls_of(function) if function is not None else []
        if function is None or len(calls) != 1:
            return None
        params = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
        for index, arg in enumerate(calls[0].args):
            given = arg.keyword.value if arg.keyword else params[index] if index < len(params) else ""
            if given == name.value and not arg.star and type(arg.value) is cst.Name:
                passed = self._given(arg.value)
                return self._made(passed[0].value) if len(passed) == 1 and passed[0].kind == "assign" else None
        return None

    def _calls_of(self, function: cst.FunctionDef) -> list[cst.Call]:
        if self._callers is None:
            self._callers = {}
            for node in self._tree.every(cst.Call):
                if type(node.func) is cst.Name:
                    called = self._names.local_function(node)
                    if called is not None:
                        self._callers.setdefault(id(called), []).append(node)
        return self._callers.get(id(function), [])
