"""Methods of objects whose class stands in the same file: ``bench = Bench(); bench.step()``."""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import is_self
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree


class Instances:
    """Finds the method that a call of one module runs."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._callers: dict[int, list[cst.Call]] | None = None

    def method(self, call: cst.Call) -> cst.FunctionDef | None:
        """The method of a class of this file, when the receiver is certainly an instance of it; also ``__call__``."""
        func = call.func
        if not self._has_classes:
            return None
        if type(func) is cst.Attribute:
            found = self._member(self._class_of(func.value), func.attr.value)
            return found or (self._member(self._class_of(func), "__call__") if is_self(func.value) else None)
        return self._member(self._class_of(func), "__call__") if type(func) is cst.Name else None

    @cached_property
    def _has_classes(self) -> bool:
        return any(self._tree.every(cst.ClassDef))

    def _member(self, owner: cst.ClassDef | None, name: str) -> cst.FunctionDef | None:
        """The method of a class, or of the nearest base of this file."""
        if owner is None:
            return None
        bases = (self._names.local_class(b) for b in self._names.class_bases(owner.name.value) if "." not in b)
        for node in (n for c in (owner, *bases) if c is not None for n in c.body.body):
            if isinstance(node, cst.FunctionDef) and node.name.value == name:
                return node
        return None

    def _class_of(self, node: cst.BaseExpression) -> cst.ClassDef | None:
        if type(node) is cst.Attribute:
            return self._of_self(node) if is_self(node.value) else None
        found = self._given(node) if type(node) is cst.Name else []
        if len(found) != 1 or type(node) is not cst.Name:
            return None
        if found[0].kind == "assign":
            return self._made(found[0].value)
        if found[0].kind == "with":
            return self._entered(self._made(found[0].value))
        return self._passed(node) if found[0].kind == "param" else None

    def _of_self(self, node: cst.Attribute) -> cst.ClassDef | None:
        """``self.strategy``, which the class assigns once; ``None`` before that says nothing."""
        owner = self._tree.enclosing(node, cst.ClassDef)
        found = self._names.class_attribute(owner, node.attr.value) if isinstance(owner, cst.ClassDef) else []
        made = [b for b in found if not (isinstance(b.value, cst.Name) and b.value.value == "None")]
        return self._made(made[0].value) if len(made) == 1 and made[0].kind == "assign" else None

    def _entered(self, owner: cst.ClassDef | None) -> cst.ClassDef | None:
        """What ``with Bench() as bench`` binds, when ``__enter__`` returns the object itself."""
        enter = self._member(owner, "__enter__")
        ends = (n for n in self._tree.own_nodes(enter) if isinstance(n, cst.Return)) if enter is not None else ()
        values = [n.value for n in ends]
        return owner if values and all(v is not None and is_self(v) for v in values) else None

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
