"""Tensors whose shape depends on the data of the rank: generated text, boolean selections, positions of non-zeros."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import keyword, last_name
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_MAX_STEPS = 8
# Methods and functions whose result has as many rows as the data says.
_SELECTS = {"nonzero": "positions of non-zeros", "masked_select": "a boolean selection", "argwhere": "positions"}
_SELECTS |= {"unique": "distinct values", "unique_consecutive": "distinct values"}
# What hands a tensor on in its shape.
_KEEPS = frozenset(
    {
        *("contiguous", "to", "cpu", "cuda", "detach", "clone", "float", "long", "int", "half", "bfloat16", "double"),
        *("type_as", "requires_grad_", "npu", "xpu"),
    }
)
_BOOLEAN = frozenset({"bool", "logical_and", "logical_or", "logical_not", "isin", "eq", "ne", "gt", "lt", "ge", "le"})
_PARTS = frozenset({"sequences"})


class Ragged:
    """Recognises such tensors in one module, along straight lines of code."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def source(self, node: cst.BaseExpression, steps: int = 0) -> tuple[cst.BaseExpression, str] | None:
        """The expression that makes a tensor ragged, and what it gives; ``None`` when nothing says so."""
        if steps > _MAX_STEPS:
            return None
        if isinstance(node, cst.Name):
            found = [self.source(value, steps + 1) for value in self.last_values(node) or self._passed(node)]
            return found[-1] if found and all(f is not None for f in found) else None
        if isinstance(node, cst.Attribute):
            return self.source(node.value, steps + 1) if node.attr.value in _PARTS else None
        if isinstance(node, cst.Subscript):
            return self._selected(node, steps)
        return self._called(node, steps) if isinstance(node, cst.Call) else None

    def last_values(self, name: cst.Name) -> list[cst.BaseExpression]:
        """What the assignments before a use may give, the last first, up to the one that every way to the use passes.

        Empty when there is none of that kind, or one of another kind may come between.
        """
        found = self._names.bindings(name.value, name)
        at = self._tree.position(name)
        before = [b for b in found if self._tree.position(b.node) < at and not self._assigns_here(b, name)]
        values: list[cst.BaseExpression] = []
        for binding in reversed(before):
            value = self._assigned(binding)
            if value is None or self._tree.function(binding.node) is not self._tree.function(name):
                return []
            values.append(value)
            if self._tree.always_before(binding.node, name):
                return values
        return []

    def _assigned(self, binding: Binding) -> cst.BaseExpression | None:
        """``x = value``, and ``x, y = value, other``."""
        if binding.kind == "unpack" and isinstance(binding.value, cst.Tuple) and isinstance(binding.position, int):
            parts = binding.value.elements
            return parts[binding.position].value if binding.position < len(parts) else None
        return binding.value if binding.kind == "assign" else None

    def _passed(self, name: cst.Name) -> list[cst.BaseExpression]:
        """What the one call of a function of the file passes: ``gather_all(ids)``."""
        found = self._names.bindings(name.value, name)
        param = found[0].node if len(found) == 1 else None
        given = self._names.callers.passed(param) if param is not None else []
        return [given[0]] if len(given) == 1 and given[0] is not None else []

    def _assigns_here(self, binding: Binding, name: cst.Name) -> bool:
        """``x = gather(x)``: the target stands before the use, and is bound after it."""
        return binding.value is not None and self._tree.contains(binding.value, name)

    def _called(self, call: cst.Call, steps: int) -> tuple[cst.BaseExpression, str] | None:
        name = self._names.called(call)
        if not isinstance(call.func, cst.Attribute):
            return None
        if name == "generate":
            return call, "generated ids"
        if name in _SELECTS and keyword(call, "size") is None:
            return call, _SELECTS[name]
        if name in _KEEPS:
            return self.source(call.func.value, steps + 1)
        return None

    def _selected(self, node: cst.Subscript, steps: int) -> tuple[cst.BaseExpression, str] | None:
        first = node.slice[0].slice if node.slice else None
        if len(node.slice) == 1 and isinstance(first, cst.Index):
            return (node, "a boolean selection") if self._is_boolean(first.value, steps) else None
        # ``ids[:, length:]`` drops the prompt, the lengths still differ; ``ids[0, :5]`` is another matter.
        whole = isinstance(first, cst.Slice) and first.lower is None and first.upper is None
        last = node.slice[-1].slice
        if len(node.slice) == 2 and whole and isinstance(last, cst.Slice) and self._is_own_length(last.upper):
            return node, "what is left of a cut at the longest row of its own batch"
        open_end = isinstance(last, cst.Slice) and last.upper is None
        return self.source(node.value, steps + 1) if len(node.slice) == 2 and whole and open_end else None

    def _is_own_length(self, bound: cst.BaseExpression | None) -> bool:
        """``mask.sum(1).max().item()``: a maximum over the data, taken where it stands and from no other rank."""
        if isinstance(bound, cst.Name):
            values = self.last_values(bound)
            return len(values) == 1 and self._is_own_length(values[0])
        if not isinstance(bound, cst.Call):
            return False
        inner = bound.func.value if isinstance(bound.func, cst.Attribute) and bound.func.attr.value == "item" else None
        if isinstance(bound.func, cst.Name) and bound.func.value == "int" and len(bound.args) == 1:
            inner = bound.args[0].value
        while isinstance(inner, cst.Call) and last_name(inner.func) in ("item", "max", "amax") and not inner.args:
            if last_name(inner.func) != "item":
                before = inner.func.value if isinstance(inner.func, cst.Attribute) else None
                return isinstance(before, cst.Call) and last_name(before.func) == "sum"
            inner = inner.func.value if isinstance(inner.func, cst.Attribute) else None
        return False

    def _is_boolean(self, node: cst.BaseExpression, steps: int) -> bool:
        if steps > _MAX_STEPS:
            return False
        if isinstance(node, cst.Comparison):
            return not isinstance(node.comparisons[0].operator, cst.Is | cst.IsNot | cst.In | cst.NotIn)
        if isinstance(node, cst.UnaryOperation):
            return isinstance(node.operator, cst.BitInvert) and self._is_boolean(node.expression, steps + 1)
        if isinstance(node, cst.BinaryOperation):
            both = isinstance(node.operator, cst.BitAnd | cst.BitOr)
            return both and (self._is_boolean(node.left, steps + 1) or self._is_boolean(node.right, steps + 1))
        if isinstance(node, cst.Call):
            return isinstance(node.func, cst.Attribute) and node.func.attr.value in _BOOLEAN
        values = self.last_values(node) if isinstance(node, cst.Name) else []
        return bool(values) and all(self._is_boolean(value, steps + 1) for value in values)
