"""The parts of a training step: which forward a loss comes from, and what an engine does around it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.names import Names
from dslint.model.script.objects.objectkinds import MODELS
from dslint.model.script.objects.objects import Objects
from dslint.model.script.tree import Tree

_MAX_STEPS = 30
_FORWARDS = MODELS | {"prepared_module"}
# Results that carry no gradient, and methods whose result is another object.
_CUT = frozenset({"detach", "item", "scale", "tolist", "numpy", "no_grad", "len", "int", "unscale"})
_NO_GRAD = frozenset({"torch.no_grad", "torch.inference_mode"})


class TrainingSteps:
    """Questions about forward, backward and step of one module."""

    def __init__(self, tree: Tree, names: Names, objects: Objects) -> None:
        self._tree = tree
        self._names = names
        self._objects = objects

    # -- losses -------------------------------------------------------------------------------------------------

    def forwards(self, node: cst.BaseExpression) -> list[cst.Call]:
        """The forward calls of models from which a value is computed: the loss of ``loss.backward()``."""
        found: dict[int, cst.Call] = {}
        for call in self._sources(node, {}, 0):
            found[id(call)] = call
        return list(found.values())

    def _sources(self, node: cst.CSTNode, seen: dict[int, cst.CSTNode], steps: int) -> Iterator[cst.Call]:
        if id(node) in seen or steps > _MAX_STEPS:
            return
        seen[id(node)] = node
        for part in self._parts(node):
            if self.has_no_graph(part):
                continue
            if isinstance(part, cst.Call) and self.is_forward(part):
                yield from self._behind(part, seen, steps)
            else:
                yield from self._sources(part, seen, steps + 1)
        if isinstance(node, cst.Call) and self.is_forward(node):
            yield from self._behind(node, seen, steps)

    def _behind(self, call: cst.Call, seen: dict[int, cst.CSTNode], steps: int) -> list[cst.Call]:
        """A forward; for that of a plain module, ``criterion(model(x), y)``, the forwards that it gets."""
        given = [a.value for a in call.args] if self.forward_kind(call) == "model" else []
        inner = [f for value in given for f in self._sources_of(value, seen, steps + 1)]
        return inner or [call]

    def _sources_of(self, value: cst.CSTNode, seen: dict[int, cst.CSTNode], steps: int) -> list[cst.Call]:
        if isinstance(value, cst.Call) and self.is_forward(value) and not self.has_no_graph(value):
            return self._behind(value, seen, steps)
        return list(self._sources(value, seen, steps))

    def has_no_graph(self, node: cst.CSTNode) -> bool:
        """No backward goes through the value: ``with torch.no_grad():`` is around it, or stands above its function."""
        for outer in self._tree.parents(node):
            if isinstance(outer, cst.With) and any(self._is_no_grad(item.item) for item in outer.items):
                return True
            if isinstance(outer, cst.FunctionDef):
                return any(self._is_no_grad(d.decorator) for d in outer.decorators)
        return False

    def _is_no_grad(self, node: cst.BaseExpression) -> bool:
        return self._names.qualified(node.func if isinstance(node, cst.Call) else node) in _NO_GRAD

    def _parts(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        if isinstance(node, cst.Name):
            return [p for b in self.reached(node) for p in _value_of(b, self._tree)]
        if isinstance(node, cst.Attribute | cst.Subscript):
            return [node.value]
        if isinstance(node, cst.BinaryOperation):
            return [node.left, node.right]
        if isinstance(node, cst.UnaryOperation):
            return [node.expression]
        if isinstance(node, cst.IfExp):
            return [node.body, node.orelse]
        if isinstance(node, cst.Tuple | cst.List):
            return [e.value for e in node.elements]
        return self._parts_of_call(node) if isinstance(node, cst.Call) and not self.is_forward(node) else []

    def _parts_of_call(self, call: cst.Call) -> list[cst.CSTNode]:
        # ``float(loss)`` is a number, ``logits.float()`` a tensor of the same graph.
        if self._names.called(call) in _CUT or (isinstance(call.func, cst.Name) and call.func.value == "float"):
            return []
        function = self._names.local_function(call)
        if function is not None:  # what a function of the file returns, whatever it was given
            returns = self._tree.own(function, cst.Return)
            return [r.value for r in returns if r.value is not None]
        receiver = [call.func.value] if isinstance(call.func, cst.Attribute) else []
        return [*receiver, *(a.value for a in call.args)]

    def is_forward(self, call: cst.Call) -> bool:
        """``model(batch)`` of a model that a library wrapped, or of the one inside."""
        return self.forward_kind(call) != ""

    def forward_kind(self, call: cst.Call) -> str:
        """The kind of the model whose forward a call is; empty when it is none."""
        called = call.func
        if isinstance(called, cst.Attribute) and called.attr.value == "forward":
            called = called.value
        kind = self._objects.kind(called)
        if kind == "prepared":  # a loader or an optimizer is never called
            return "prepared_model"
        return kind if kind in _FORWARDS and not self._is_fluent(called) else ""

    def _is_fluent(self, called: cst.BaseExpression) -> bool:
        """``engine.train`` is a method, not the engine."""
        return isinstance(called, cst.Attribute) and not self._objects.things(called)

    def reached(self, node: cst.Name | cst.Attribute) -> list[Binding]:
        """The assignments that a variable may have at a node, with those that an ``x /= n`` continues."""
        found = self._objects.reached(node)
        pending = [b for b in found if b.kind == "augmented"]
        while pending:
            earlier = self._objects.reached_before(node, pending.pop().node)
            fresh = [b for b in earlier if b not in found]
            found = [*found, *fresh]
            pending += [b for b in fresh if b.kind == "augmented"]
        return found


def _value_of(binding: Binding, tree: Tree) -> list[cst.CSTNode]:
    if binding.kind == "augmented":
        statement = tree.parent(binding.node)
        return [statement.value] if isinstance(statement, cst.AugAssign) else []
    return [binding.value] if binding.value is not None and binding.kind in ("assign", "unpack") else []
