"""Blocks that fetch the parameters which ZeRO stage 3 spreads over the ranks, and the writes into parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.dotted import is_self
from dslint.model.script.given import given
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_GATHERS = frozenset(
    {
        "deepspeed.zero.GatheredParameters",
        "deepspeed.runtime.zero.GatheredParameters",
        "deepspeed.runtime.zero.partition_parameters.GatheredParameters",
        "accelerate.utils.GatheredParameters",
        "accelerate.utils.operations.GatheredParameters",
    }
)
# Methods of a module that write all its parameters.
_MODULE_WRITERS = frozenset({"load_state_dict", "_load_from_state_dict", "reset_parameters", "_init_weights"})
# Methods that end in ``_`` and leave the values alone.
_NO_WRITE = frozenset({"requires_grad_", "retain_grad_", "share_memory_", "detach_", "rename_", "apply_"})


@dataclass(frozen=True, slots=True)
class Write:
    """A statement that changes a tensor in place: the tensor and the place.

    ``is_module``: what is written are all parameters of a module.
    """

    target: cst.BaseExpression
    node: cst.CSTNode
    is_module: bool = False


_MAX_CALLERS = 3


class Gathers:
    """The gathering blocks of one module."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def is_inside(self, node: cst.CSTNode, steps: int = 0) -> bool:
        """A ``with`` around a node, or around all calls of its function, gathers parameters, or may do so."""
        for outer in self._tree.parents(node):
            if isinstance(outer, cst.With) and any(self._may_gather(i.item) for i in outer.items):
                return True
        function = self._tree.function(node) if steps < _MAX_CALLERS else None
        calls = self._names.callers.of(function) if function is not None else []
        return bool(calls) and all(self.is_inside(call, steps + 1) for call in calls)

    def _may_gather(self, item: cst.BaseExpression) -> bool:
        if any(True for _ in self._calls(item)):
            return True
        text = self._tree.module.code_for_node(item).lower()
        return any(word in text for word in ("gather", "zero3", "unwrap", "summon", "full_param"))

    def _calls(self, item: cst.BaseExpression, steps: int = 0) -> Iterator[cst.Call]:
        if isinstance(item, cst.IfExp):
            yield from self._calls(item.body, steps)
            yield from self._calls(item.orelse, steps)
        elif isinstance(item, cst.Call):
            if self._names.qualified(item.func) in _GATHERS:
                yield item
        elif isinstance(item, cst.Name) and steps < 2:
            for binding in self._names.bindings(item.value, item):
                if binding.kind == "assign" and binding.value is not None:
                    yield from self._calls(binding.value, steps + 1)

    def write(self, node: cst.CSTNode) -> Write | None:
        """The in-place write that a node is."""
        if isinstance(node, cst.AssignTarget | cst.AugAssign):
            target = node.target
            if isinstance(target, cst.Subscript):
                return Write(_tensor(target.value), node.target)
            if isinstance(target, cst.Attribute) and target.attr.value == "data":
                return Write(target.value, target)
            is_parameter = isinstance(target, cst.Attribute) and target.attr.value in ("weight", "bias")
            # ``layer.weight *= 2``; plain assignment of a weight binds another parameter.
            return Write(target, target) if is_parameter and isinstance(node, cst.AugAssign) else None
        return self._call(node) if isinstance(node, cst.Call) else None

    def _call(self, call: cst.Call) -> Write | None:
        name = self._names.called(call)
        if isinstance(call.func, cst.Attribute) and name in _MODULE_WRITERS and not is_self(call.func.value):
            return Write(call.func.value, call, is_module=True)
        if not name.endswith("_") or name.endswith("__") or name in _NO_WRITE:
            return None
        qualified = self._names.qualified(call.func) or ""
        if qualified.startswith("torch.nn.init."):
            first = given(self._names, call).argument("tensor", 0)
            return Write(_tensor(first), call) if first is not None else None
        if isinstance(call.func, cst.Attribute) and not qualified:
            return Write(_tensor(call.func.value), call)
        return None


def _tensor(node: cst.BaseExpression) -> cst.BaseExpression:
    """The parameter of ``parameter.data[-2:]``."""
    while True:
        if isinstance(node, cst.Subscript) or (isinstance(node, cst.Attribute) and node.attr.value == "data"):
            node = node.value
        else:
            return node
