"""Blocks that fetch the parameters which ZeRO stage 3 spreads over the ranks, and the writes into parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.dotted import is_self, last_name
from dslint.model.script.given import given
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

GATHERS = frozenset(
    {
        "deepspeed.zero.GatheredParameters",
        "deepspeed.runtime.zero.GatheredParameters",
        "deepspeed.runtime.zero.partition_parameters.GatheredParameters",
        "accelerate.utils.GatheredParameters",
        "accelerate.utils.operations.GatheredParameters",
    }
)
_PARAMETERS, _MODIFIER, _ENABLED = 0, 1, 3
_MAX_STEPS = 4
_WRAPPERS = frozenset({"list", "tuple", "set", "dict", "iter", "filter", "chain", "_z3_params_to_fetch"})
_OF_MODULE = frozenset({"parameters", "named_parameters"})
# Methods of a module that write all its parameters.
MODULE_WRITERS = frozenset({"load_state_dict", "_load_from_state_dict", "reset_parameters", "_init_weights"})
# Methods that end in ``_`` and leave the values alone.
_NO_WRITE = frozenset({"requires_grad_", "retain_grad_", "share_memory_", "detach_", "rename_", "apply_"})
_RANDOM = frozenset(
    {
        *("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_", "geometric_", "log_normal_"),
        *("xavier_normal_", "xavier_uniform_", "kaiming_normal_", "kaiming_uniform_", "trunc_normal_"),
        *("orthogonal_", "sparse_", "reset_parameters", "_init_weights"),
    }
)


@dataclass(frozen=True, slots=True)
class Gather:
    """One ``with GatheredParameters(...)``: the block, the call, and its arguments (``None``: not passed)."""

    block: cst.With
    call: cst.Call
    parameters: cst.BaseExpression | None
    modifier: cst.BaseExpression | None
    enabled: cst.BaseExpression | None


@dataclass(frozen=True, slots=True)
class Write:
    """A statement that changes a tensor in place: the tensor, the place, and whether the values are drawn at random.

    ``is_module``: what is written are all parameters of a module.
    """

    target: cst.BaseExpression
    node: cst.CSTNode
    is_random: bool = False
    is_module: bool = False


_MAX_CALLERS = 3


class Gathers:
    """The gathering blocks of one module."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def of_block(self, block: cst.With) -> Iterator[Gather]:
        """The gathers that a ``with`` enters, made there or held in a variable before."""
        for item in block.items:
            for call in self._calls(item.item):
                yield Gather(
                    block,
                    call,
                    given(self._names, call).argument("params", _PARAMETERS),
                    given(self._names, call).argument("modifier_rank", _MODIFIER),
                    given(self._names, call).argument("enabled", _ENABLED),
                )

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
            if self._names.qualified(item.func) in GATHERS:
                yield item
        elif isinstance(item, cst.Name) and steps < 2:
            for binding in self._names.bindings(item.value, item):
                if binding.kind == "assign" and binding.value is not None:
                    yield from self._calls(binding.value, steps + 1)

    # -- what is gathered ---------------------------------------------------------------------------------------

    def holds(self, gather: Gather, write: Write) -> bool:
        """The tensor (or the module) that a write changes is certainly among the gathered parameters."""
        wanted = self._text(write.target)
        for tensor, is_module in self._gathered(gather.parameters, 0):
            text = self._text(tensor)
            if is_module:
                # ``GatheredParameters(model.parameters())``: any weight below ``model``.
                below = wanted.startswith(text + ".") and last_name(write.target) in ("weight", "bias")
                if (write.is_module and wanted == text) or below or self._is_item_of(write.target, text):
                    return True
            elif not write.is_module and (text == wanted or self._is_item_of(write.target, text)):
                return True
        return False

    def _gathered(self, node: cst.BaseExpression | None, steps: int) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """The tensors, or with true the modules all parameters of which, are gathered."""
        if steps > _MAX_STEPS:
            return
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _OF_MODULE:
            yield node.func.value, True
        if isinstance(node, cst.Name | cst.Attribute):
            yield node, False
            # ``params = []`` with ``params.append(weight)`` later says nothing; a list that is written out does.
            for part in filter(None, [self._names.single_value(node)]):
                yield from self._gathered(part, steps + 1)
        for part in _parts(node):
            yield from self._gathered(part, steps + 1)

    def _is_item_of(self, target: cst.BaseExpression, text: str) -> bool:
        """``p`` of ``for p in model.parameters()``, ``for name, p in params.items()``, ``for p, q in zip(params)``."""
        if not isinstance(target, cst.Name):
            return False
        found = self._names.bindings(target.value, target)
        if len(found) != 1 or found[0].kind != "loop" or found[0].value is None:
            return False
        source, position = found[0].value, found[0].position
        while isinstance(source, cst.Call):
            if self._names.called(source) == "zip" and position is not None and position < len(source.args):
                source, position = source.args[position].value, None
            elif isinstance(source.func, cst.Attribute):
                source = source.func.value
            elif len(source.args) == 1:
                source = source.args[0].value
            else:
                return False
        return self._text(source) == text

    def _text(self, node: cst.BaseExpression) -> str:
        """The text of an expression, with names that stand for attribute chains written out."""
        if isinstance(node, cst.Name):
            value = self._names.single_value(node)
            if isinstance(value, cst.Attribute):
                node = _tensor(value)
        return self._tree.module.code_for_node(node)

    # -- writes -------------------------------------------------------------------------------------------------

    def writes(self, block: cst.CSTNode) -> Iterator[Write]:
        """The in-place writes that run when a block runs."""
        for node in self._tree.own_nodes(block):
            found = self.write(node)
            if found is not None:
                yield found

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
        if isinstance(call.func, cst.Attribute) and name in MODULE_WRITERS and not is_self(call.func.value):
            return Write(call.func.value, call, name in _RANDOM, is_module=True)
        if not name.endswith("_") or name.endswith("__") or name in _NO_WRITE:
            return None
        qualified = self._names.qualified(call.func) or ""
        if qualified.startswith("torch.nn.init."):
            first = given(self._names, call).argument("tensor", 0)
            return Write(_tensor(first), call, name in _RANDOM) if first is not None else None
        if isinstance(call.func, cst.Attribute) and not qualified:
            return Write(_tensor(call.func.value), call, name in _RANDOM)
        return None


def _parts(node: cst.BaseExpression | None) -> list[cst.BaseExpression]:
    """The expressions that a list of tensors is made of."""
    if isinstance(node, cst.List | cst.Tuple | cst.Set):
        return [element.value for element in node.elements]
    if isinstance(node, cst.Call) and last_name(node.func) in _WRAPPERS:
        return [arg.value for arg in node.args]
    if isinstance(node, cst.BinaryOperation):
        return [node.left, node.right]
    return [node.body, node.orelse] if isinstance(node, cst.IfExp) else []


def _tensor(node: cst.BaseExpression) -> cst.BaseExpression:
    """The parameter of ``parameter.data[-2:]``."""
    while True:
        if isinstance(node, cst.Subscript) or (isinstance(node, cst.Attribute) and node.attr.value == "data"):
            node = node.value
        else:
            return node
