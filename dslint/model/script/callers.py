"""Which calls of a file run a function of it, and what they pass for its parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from dslint.model.script.dotted import last_name
from dslint.model.script.parameters import bound

if TYPE_CHECKING:
    from dslint.model.script.names import Names

_Calls = dict[int, list[cst.Call]]
_RunBy = Callable[[cst.Call], "cst.FunctionDef | None"]


class Callers:
    """Answers for one module; a call is resolved at the first question for a function of its name.

    Calls in other files, and of a function that is handed on (``map(load, paths)``), are not among them.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._tree = names.tree
        self._all: _Calls = {}
        self._plain: _Calls = {}

    def of(self, function: cst.CSTNode) -> list[cst.Call]:
        """Every call that runs a function or a method, in source order; of ``__init__`` also those of its class."""
        return self._asked(self._all, function, lambda c: self._names.local_function(c) or self._constructor(c))

    def by_name(self, function: cst.CSTNode) -> list[cst.Call]:
        """Those that say so by a name alone: of a function, and of the class of an ``__init__``.

        The classes of objects are told by these; to ask for more there would lead back to the same question.
        """
        return self._asked(self._plain, function, self._named)

    def passed(self, param: cst.CSTNode, *, by_name: bool = False) -> list[cst.BaseExpression | None]:
        """What these calls pass for a parameter, or its default where they leave it out; ``None``: that is open.

        Nothing for a parameter of a ``lambda``, and for ``*args`` and ``**kwargs``.
        """
        function = self._tree.function(param)
        if type(param) is not cst.Param or function is None or not any(p is param for p in _params(function)):
            return []
        calls = self.by_name(function) if by_name else self.of(function)
        return [bound(self._tree, call, function).value(param.name.value) for call in calls]

    def _asked(self, known: _Calls, function: cst.CSTNode, run_by: _RunBy) -> list[cst.Call]:
        if type(function) is not cst.FunctionDef:
            return []
        if id(function) not in known:
            known[id(function)] = [c for c in self._may_run(function.name.value) if run_by(c) is function]
        return known[id(function)]

    def _may_run(self, name: str) -> list[cst.Call]:
        """The calls by the name of a function; an object is called by any name, an ``__init__`` by that of a class."""
        if name == "__call__":
            return [*self._tree.every(cst.Call)]
        if name == "__init__":
            classes = {owner.name.value for owner in self._tree.every(cst.ClassDef)} | {name}
            return [c for c in self._tree.every(cst.Call) if last_name(c.func) in classes]
        return self._by_word.get(name, [])

    @cached_property
    def _by_word(self) -> dict[str, list[cst.Call]]:
        """The calls by the last word of what is called: most calls are of functions of other files."""
        found: dict[str, list[cst.Call]] = {}
        for call in self._tree.every(cst.Call):
            found.setdefault(last_name(call.func), []).append(call)
        return found

    def _named(self, call: cst.Call) -> cst.FunctionDef | None:
        if type(call.func) is not cst.Name:
            return None
        return self._constructor(call) or self._names.function_named(call.func)

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
