"""What a called function of the file returns, and whether it asks other ranks: values followed over one call."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from dslint.model.script.dotted import last_name
from dslint.model.script.traces.agreement import agrees
from dslint.model.script.tree import Tree

_MAX_DEPTH = 3


class Passing:
    """Answers for one module."""

    def __init__(self, tree: Tree, helper: Callable[[cst.Call], cst.FunctionDef | None]) -> None:
        """``helper``: the function or method of this file that a call runs."""
        self._tree = tree
        self._helper = helper

    def returned(self, call: cst.Call) -> list[cst.BaseExpression]:
        """What a function of the file may return for a call; empty for other calls."""
        function = self._helper(call)
        nodes = self._tree.own_nodes(function) if function is not None else ()
        return [node.value for node in nodes if isinstance(node, cst.Return) and node.value is not None]

    def agrees(self, call: cst.Call) -> bool:
        """A function of the file that a call runs calls something that makes values the same on all ranks."""
        function = self._helper(call)
        nodes = self._tree.own_nodes(function) if function is not None else ()
        return any(isinstance(node, cst.Call) and agrees(last_name(node.func)) for node in nodes)

    def is_local(self, call: cst.Call, depth: int = 0) -> bool:
        """The method that a call runs asks no other rank, nor does what it calls in this file."""
        function = self._helper(call)
        if function is None or depth > _MAX_DEPTH or self._tree.enclosing(function, cst.ClassDef) is None:
            return function is None
        inner = self._tree.own(function, cst.Call)
        return not any(agrees(last_name(n.func)) or not self.is_local(n, depth + 1) for n in inner)
