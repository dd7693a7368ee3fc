"""What a call may run that holds an object: most callees are methods and functions of which nothing is known."""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from dslint.model.script.collective import frameworks
from dslint.model.script.names import Names
from dslint.model.script.objects.objectkinds import ATTRIBUTES
from dslint.model.script.tree import Tree

# A parameter with one of these names in a file that imports DeepSpeed; ``engine`` alone may be anything.
ENGINE_NAMES = frozenset({"model_engine", "ds_engine", "deepspeed_engine"})
# The names that say themselves what stands behind them.
_SPEAKING = frozenset(
    {*ENGINE_NAMES, "engine", "accelerator", "trainer", "module", *frameworks.NAMES, *(name for _, name in ATTRIBUTES)}
)
_DEFINED = frozenset({"function", "class"})


class Callees:
    """Answers for one module."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def is_open(self, called: cst.BaseExpression) -> bool:
        """Nothing in the file can say that the callee holds an object: its name is only called and defined.

        An object comes under a name by an assignment, by the call that it is handed to, or by a test of its class.
        """
        if type(called) is cst.Attribute:
            name = called.attr.value
            return name not in _SPEAKING and name not in self._held
        if type(called) is not cst.Name or called.value in _SPEAKING or called.value in self._given:
            return False
        return all(b.kind in _DEFINED for b in self._names.bindings(called.value, called))

    @cached_property
    def _held(self) -> set[str]:
        """The attributes that are more than called, and what calls pass by name: ``SimpleNamespace(engine=...)``."""
        called = {id(call.func) for call in self._tree.every(cst.Call)}
        found = {node.attr.value for node in self._tree.every(cst.Attribute) if id(node) not in called}
        return found | {arg.keyword.value for arg in self._tree.every(cst.Arg) if arg.keyword is not None}

    @cached_property
    def _given(self) -> set[str]:
        """The variables that calls take."""
        return {arg.value.value for arg in self._tree.every(cst.Arg) if type(arg.value) is cst.Name}
