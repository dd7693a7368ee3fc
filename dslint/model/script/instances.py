"""Methods of objects whose class stands in the same file: ``bench = Bench(); bench.step()``, ``self.saver.save()``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import is_none, is_self, last_name

if TYPE_CHECKING:
    from dslint.model.script.names import Names

# An object may be handed on from function to function: as far as this it is followed back.
_MAX_STEPS = 4
_OPTIONAL = frozenset({"typing.Optional", "Optional"})


class Instances:
    """Finds the method that a call of one module runs on an instance of a class of this module.

    The receiver is certainly such an instance: it is made on the spot, or it is a variable, an attribute of ``self``
    or a parameter that holds nothing else (but ``None``, on which the call would fail), by the assignments and
    ``with`` statements that bind it, by the calls that pass it, or by its annotation. Rules ask by
    :meth:`Names.local_function`. Nothing is looked up before the first question about a method that some class has.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._tree = names.tree
        self._classes: dict[tuple[int, str], cst.ClassDef | None] = {}

    def method(self, node: cst.Attribute) -> cst.FunctionDef | None:
        """The method that ``x.method`` means; ``None`` where the class of ``x`` is open, and for a property."""
        return self._of(node.value, node.attr.value)

    def call_method(self, node: cst.BaseExpression) -> cst.FunctionDef | None:
        """The method ``__call__`` that ``x(...)`` runs; ``None`` where the class of ``x`` is open."""
        return self._of(node, "__call__")

    # -- methods of a class ---------------------------------------------------------------------------------------

    def _of(self, value: cst.BaseExpression, name: str) -> cst.FunctionDef | None:
        owner = self._class_of(value) if name in self._methods else None
        return self._member(owner, name) if owner is not None else None

    @cached_property
    def _methods(self) -> frozenset[str]:
        """The names of all methods of the module: most calls of attributes have another."""
        bodies = (owner.body.body for owner in self._tree.every(cst.ClassDef))
        return frozenset(n.name.value for body in bodies for n in body if isinstance(n, cst.FunctionDef))

    def _member(self, owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        """The method of a class, or of the nearest base of this file."""
        bases = (self._names.local_class(b) for b in self._names.class_bases(owner.name.value) if "." not in b)
        for holder in (owner, *filter(None, bases)):
            found = self._names.member(holder, name)
            if found is not None:
                is_value = any(last_name(d.decorator).endswith("property") for d in found.decorators)
                return None if is_value else found
        return None

    # -- the class of an expression -------------------------------------------------------------------------------

    def _class_of(self, value: cst.CSTNode | None, steps: int = 0) -> cst.ClassDef | None:
        """The one class whose instance an expression certainly is."""
        if isinstance(value, cst.Call):
            called = value.func
            return self._names.local_class(called.value, called) if isinstance(called, cst.Name) else None
        if isinstance(value, cst.Name):
            key = (id(self._names.scope(value)), value.value)
        elif isinstance(value, cst.Attribute) and is_self(value.value):
            key = (id(self._tree.enclosing(value, cst.ClassDef)), f".{value.attr.value}")
        else:
            return None
        if key in self._classes:
            return self._classes[key]
        found = self._variable(value, steps)
        if not steps:  # further on, the limit of steps may be what leaves it open
            self._classes[key] = found
        return found

    def _variable(self, value: cst.Name | cst.Attribute, steps: int) -> cst.ClassDef | None:
        if steps > _MAX_STEPS:
            return None
        if isinstance(value, cst.Name):
            found = self._names.bindings(value.value, value)
        else:
            owner = self._tree.enclosing(value, cst.ClassDef)
            found = self._names.class_attribute(owner, value.attr.value) if isinstance(owner, cst.ClassDef) else []
        # ``del`` takes a variable away, and on ``None`` no method is called.
        made = (b for b in found if b.kind == "param" or not (is_none(b.value) or (b.kind == "other" and not b.value)))
        return _only(self._bound(b, steps + 1) for b in made)

    def _bound(self, binding: Binding, steps: int) -> cst.ClassDef | None:
        if binding.kind == "assign":
            return self._class_of(binding.value, steps)
        if binding.kind == "with":
            return self._entered(self._class_of(binding.value, steps))
        if binding.kind != "param" or not isinstance(binding.node, cst.Param):
            return None
        return self._passed(binding.node, steps) or self._annotated(binding.node)

    def _entered(self, owner: cst.ClassDef | None) -> cst.ClassDef | None:
        """What ``with Bench() as bench`` binds, when ``__enter__`` returns the object itself."""
        enter = self._member(owner, "__enter__") if owner is not None else None
        ends = [n.value for n in self._tree.own(enter, cst.Return)] if enter is not None else []
        return owner if ends and all(value is not None and is_self(value) for value in ends) else None

    def _annotated(self, param: cst.Param) -> cst.ClassDef | None:
        """``saver: Saver``, ``Optional[Saver]``, ``"Saver"``, where no class of the file derives from it."""
        said = param.annotation.annotation if param.annotation is not None else None
        if isinstance(said, cst.Subscript) and len(said.slice) == 1 and self._names.qualified(said.value) in _OPTIONAL:
            index = said.slice[0].slice
            said = index.value if isinstance(index, cst.Index) else None
        if isinstance(said, cst.BinaryOperation) and isinstance(said.operator, cst.BitOr):
            said = said.left if is_none(said.right) else said.right if is_none(said.left) else None
        name = said.value if isinstance(said, cst.Name) else ""
        if isinstance(said, cst.SimpleString):
            name = str(said.evaluated_value)
        owner = self._names.local_class(name) if name else None
        derived = any(name in self._names.class_bases(other.name.value) for other in self._tree.every(cst.ClassDef))
        return None if derived else owner

    def _passed(self, param: cst.Param, steps: int) -> cst.ClassDef | None:
        passed = self._names.callers.passed(param, by_name=True)
        return _only(self._class_of(value, steps) for value in passed if not is_none(value))


def _only(classes: Iterable[cst.ClassDef | None]) -> cst.ClassDef | None:
    """The one class that all of them are."""
    first: cst.ClassDef | None = None
    for found in classes:
        if found is None or (first is not None and found is not first):
            return None
        first = found
    return first
