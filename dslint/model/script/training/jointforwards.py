"""Two forwards in one graph: ``engine(a)`` and ``engine(b)`` from which one loss is certainly computed."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dslint.model.script.dotted import dotted
from dslint.model.script.names import Names
from dslint.model.script.training.trainingstep import TrainingSteps
from dslint.model.script.tree import Tree

_MAX_STEPS = 12
# Methods whose result hangs on the tensor that they are called on.
_KEEPS = frozenset(
    {
        *("mean", "sum", "square", "pow", "abs", "sqrt", "exp", "log", "softmax", "log_softmax", "float", "view"),
        *("reshape", "squeeze", "unsqueeze", "transpose", "flatten", "norm", "sigmoid", "tanh", "contiguous"),
    }
)
_DRAWN = frozenset({"T", "loss", "logits", "last_hidden_state", "pooler_output"})


class JointForwards:
    """Follows a loss through what keeps its graph alone: anything else ends the search, and no forward is invented."""

    def __init__(self, tree: Tree, names: Names, training: TrainingSteps) -> None:
        self._tree = tree
        self._names = names
        self._training = training

    def of(self, loss: cst.BaseExpression) -> list[cst.Call]:
        """The forwards of an engine that are certainly in the graph of a loss, all of them of one variable."""
        found = {id(c): c for c in self._certain(loss, 0) if self._training.forward_kind(c) == "engine"}
        names = {dotted(c.func) for c in found.values()}
        return list(found.values()) if len(names) == 1 and None not in names else []

    def _certain(self, node: cst.BaseExpression, steps: int) -> Iterator[cst.Call]:
        if steps > _MAX_STEPS:
            return
        if isinstance(node, cst.Call):
            if self._training.has_no_graph(node):
                return
            if self._training.is_forward(node):
                yield node
                return
        for part in self._parts(node):
            yield from self._certain(part, steps + 1)

    def _parts(self, node: cst.BaseExpression) -> list[cst.BaseExpression]:
        if isinstance(node, cst.Name):
            return self._of_name(node)
        if isinstance(node, cst.BinaryOperation):
            return [node.left, node.right]
        if isinstance(node, cst.UnaryOperation):
            return [node.expression]
        if isinstance(node, cst.Attribute):
            return [node.value] if node.attr.value in _DRAWN else []
        return self._of_call(node) if isinstance(node, cst.Call) else []

    def _of_name(self, node: cst.Name) -> list[cst.BaseExpression]:
        """The one value that reaches a name, also ``q, p = engine(a), engine(b)``; never one of several."""
        found = self._training.reached(node)
        value = found[0].value if len(found) == 1 and found[0].kind in ("assign", "unpack") else None
        if value is None or self._training.has_no_graph(found[0].node):
            return []
        if found[0].kind == "assign":
            return [value]
        index = found[0].position
        parts = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
        return [parts[index].value] if index is not None and index < len(parts) else []

    def _of_call(self, call: cst.Call) -> list[cst.BaseExpression]:
        function = self._names.local_function(call)
        if function is not None:
            returns = self._tree.own(function, cst.Return)
            return [returns[0].value] if len(returns) == 1 and returns[0].value is not None else []
        if (self._names.qualified(call.func) or "").startswith("torch.nn.functional."):
            return [a.value for a in call.args if a.keyword is None and not a.star][:2]
        is_method = isinstance(call.func, cst.Attribute) and call.func.attr.value in _KEEPS
        return [call.func.value] if is_method and isinstance(call.func, cst.Attribute) else []
