"""What makes a value the same on all ranks: it is handed to a reduction, a gather, a broadcast."""

from __future__ import annotations

import re
from functools import cached_property

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

# Makes values the same on all ranks: ``dist.all_reduce(flag)`` in place, ``accelerator.gather(x)`` as a result.
_AGREES = re.compile(r"reduce|gather|broadcast|bcast|sync|agree|across|consensus|all_to_all", re.I)


def agrees(name: str) -> bool:
    """A call of this name makes values the same on all ranks."""
    return _AGREES.search(name) is not None


class Agreements:
    """Answers for one module."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def between(self, binding: Binding, node: cst.CSTNode) -> bool:
        """The variable was handed to something that makes it the same on all ranks: ``dist.all_reduce(flag)``."""
        name = last_name(node)
        start, end = self._tree.position(binding.node), self._tree.position(node)
        return any(start < at < end for at in self._places.get(name, ()))

    def told_in_list(self, binding: Binding, name: cst.Name, reaching: list[Binding]) -> bool:
        """``told = [stop]``; ``broadcast_object_list(told)``; ``if rank != 0: stop = told[0]``: the others read it."""
        held = (b.value.value for b in reaching if type(b.value) is cst.Subscript)
        for box in (h for h in held if type(h) is cst.Name):
            for made in self._names.bindings(box.value, box):
                if made.value is None or not self.between(made, box):
                    continue
                inside = self._tree.descendants(made.value)
                after = self._tree.position(made.node) > self._tree.position(binding.node)
                if after and any(type(n) is cst.Name and n.value == name.value for n in inside):
                    return True
        return False

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Where variables are handed to such calls, by name."""
        found: dict[str, list[int]] = {}
        for call in self._tree.every(cst.Call):
            if agrees(self._names.called(call)):
                for arg in call.args:
                    behind = self._names.single_value(arg.value) if arg.star else None  # ``all_reduce(*values)``
                    for given in _handed(behind or arg.value):
                        found.setdefault(given, []).append(self._tree.position(call))
        return found


def _handed(node: cst.BaseExpression) -> list[str]:
    """The variables that a call may change: ``x``, ``x.data``, ``[x]``."""
    if isinstance(node, cst.List | cst.Tuple):
        return [name for e in node.elements for name in _handed(e.value)]
    names = [last_name(node)] if isinstance(node, cst.Name | cst.Attribute) else []
    return [*names, last_name(node.value)] if type(node) is cst.Attribute else names
