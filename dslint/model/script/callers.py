"""Which calls of a file run a function of it, and what they pass for its parameters."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from dslint.model.script.parameters import bound

if TYPE_CHECKING:
    from dslint.model.script.names import Names

_Calls = dict[int, list[cst.Call]]


class Callers:
    """Answers for one module; the calls are looked through once, at the first question of a kind.

    Calls in other files, and of a function that is handed on (``map(load, paths)``), are not among them.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._tree = names.tree

    def of(self, function: cst.CSTNode) -> list[cst.Call]:
        """Every call that runs a function or a method, in source order; of ``__init__`` also those of its class."""
        return self._all.get(id(function), [])

    def by_name(self, function: cst.CSTNode) -> list[cst.Call]:
        """Those that say so by a name alone: of a function, and of the class of an ``__init__``.

        The classes of objects are told by these; to ask for more there would lead back to the same question.
        """
        return self._by_name.get(id(function), [])

    def passed(self, param: cst.CSTNode, *, by_name: bool = False) -> list[cst.BaseExpression | None]:
        """What these calls pass for a parameter, or its default where they leave it out; ``None``: that is open.

        Nothing for a parameter of a ``lambda``, and for ``*args`` and ``**kwargs``.
        """
        function = self._tree.function(param)
        if type(param) is not cst.Param or function is None or not any(p is param for p in _params(function)):
            return []
        calls = self.by_name(function) if by_name else self.of(function)
        return [bound(self._tree, call, function).value(param.name.value) for call in calls]

    @cached_property
    def _all(self) -> _Calls:
        found: _Calls = {}
        for call in self._tree.every(cst.Call):
            run = self._names.local_function(call) or self._constructor(call)
            if run is not None:
                found.setdefault(id(run), []).append(call)
        return found

    @cached_property
    def _by_name(self) -> _Calls:
        found: _Calls = {}
        for call in self._tree.every(cst.Call):
            if type(call.func) is cst.Name:
                run = self._constructor(call) or self._names.function_named(call.func)
                if run is not None:
                    found.setdefault(id(run), []).append(call)
        return found

    def _constructor(self, call: cst.Call) -> cst.FunctionDef | None:
        """The ``__init__`` that a call of a class of this file runs: its own, or that of the nearest base."""
        owner = self._names.local_class(call.func.value, call) if type(call.func) is cst.Name else None
        if owner is None:
            return None
        for base in (owner.name.value, *self._names.class_bases(owner.name.value)):
            holder = owner if base == owner.name.value else self._names.local_class(base) if "." not in base else None
            if holder is None and base != "object":
                return None  # of another file: its ``__init__`` may come first
            if holder is not None and "__init__" in map(_name, holder.body.body):
                return self._names.member(holder, "__init__")
        return None


def _name(statement: cst.CSTNode) -> str:
    return statement.name.value if type(statement) is cst.FunctionDef else ""


def _params(function: cst.FunctionDef) -> tuple[cst.Param, ...]:
    return (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params)
