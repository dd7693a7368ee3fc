"""Layers of a model class of the file: which of them the forward uses, always, on a condition, or never."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.model.script.dotted import is_none, is_self, last_name
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

# Layers that hold parameters; containers and losses are left out, their content is another matter.
_LAYERS = frozenset(
    {
        *("Linear", "Embedding", "Conv1d", "Conv2d", "Conv3d", "LayerNorm", "RMSNorm", "BatchNorm1d", "BatchNorm2d"),
        *("GroupNorm", "MultiheadAttention", "LSTM", "GRU", "TransformerEncoderLayer", "ConvTranspose2d", "Bilinear"),
    }
)
# With these anything may reach any layer.
_SWEEPING = frozenset(
    {
        *("children", "named_children", "modules", "named_modules", "named_parameters", "_modules", "getattr"),
        *("__dict__", "vars", "apply", "requires_grad", "requires_grad_", "register_forward_hook", "setattr"),
    }
)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that some forward leaves out. ``parameter``: of forward, that must be given for the layer to be used."""

    name: str
    made: cst.CSTNode
    parameter: str = ""
    test: cst.BaseExpression | None = None


class Submodules:
    """The layers of one model class, when the class is simple enough to tell."""

    def __init__(self, tree: Tree, names: Names, owner: cst.ClassDef) -> None:
        self._tree = tree
        self._names = names
        self._owner = owner
        members = {m.name.value: m for m in owner.body.body if isinstance(m, cst.FunctionDef)}
        self._init, self.forward = members.get("__init__"), members.get("forward")

    def left_out(self) -> list[Layer]:
        """Layers with parameters that no method uses, or only a test of a parameter of ``forward`` lets in."""
        if self._init is None or self.forward is None or not self._is_simple():
            return []
        found = []
        for name, made in self._layers(self._init).items():
            uses = self._uses(name)
            if not uses:
                found.append(Layer(name, made))
                continue
            tests = [self._condition(use) for use in uses]
            first = tests[0]
            if first is not None and all(t is not None and t[0] == first[0] for t in tests):
                found.append(Layer(name, made, *first))
        return found

    def parts(self) -> list[cst.ClassDef]:
        """The classes of this file whose instances are certain parts of the model, and used: ``self.x = Encoder()``."""
        found = []
        for statement in self._init.body.body if self._init is not None and self._is_simple() else ():
            small = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
            for node in small:
                made = node.value if isinstance(node, cst.Assign) and len(node.targets) == 1 else None
                target = node.targets[0].target if isinstance(node, cst.Assign) else None
                if isinstance(made, cst.Call) and isinstance(made.func, cst.Name) and isinstance(target, cst.Attribute):
                    owner = self._names.local_class(made.func.value, made)
                    if owner is not None and is_self(target.value) and self._uses(target.attr.value):
                        found.append(owner)
        return found

    def _is_simple(self) -> bool:
        """A direct child of ``nn.Module``, and nothing reaches for its layers by other ways than ``self.x``."""
        bases = self._names.class_bases(self._owner.name.value)
        if bases != ["torch.nn.Module"]:
            return False
        named = (n for n in self._tree.order if isinstance(n, cst.Name | cst.Attribute))
        return not any(last_name(n) in _SWEEPING or self._loops_over_parameters(n) for n in named)

    def _loops_over_parameters(self, node: cst.CSTNode) -> bool:
        """``for p in model.parameters():`` may freeze or add to the loss; an optimizer that gets them does not."""
        if not isinstance(node, cst.Attribute) or node.attr.value != "parameters":
            return False
        call = self._tree.parent(node)
        return not (isinstance(call, cst.Call) and isinstance(self._tree.parent(call), cst.Arg))

    def _layers(self, init: cst.FunctionDef) -> dict[str, cst.CSTNode]:
        """``self.x = nn.Linear(...)`` at the top of ``__init__``: made on every path."""
        found: dict[str, cst.CSTNode] = {}
        for statement in init.body.body:
            small = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
            for node in small:
                if isinstance(node, cst.Assign) and len(node.targets) == 1 and isinstance(node.value, cst.Call):
                    target, full = node.targets[0].target, self._names.qualified(node.value.func) or ""
                    known = full.startswith("torch.nn.") and full.rpartition(".")[2] in _LAYERS
                    if known and isinstance(target, cst.Attribute) and is_self(target.value):
                        found[target.attr.value] = node
        return found

    def _uses(self, name: str) -> list[cst.Attribute]:
        """Every reading of ``.name`` in the file, except the assignment that makes the layer."""
        return [
            n
            for n in self._tree.order
            if isinstance(n, cst.Attribute)
            and n.attr.value == name
            and not isinstance(self._tree.parent(n), cst.AssignTarget)
        ]

    def _condition(self, use: cst.Attribute) -> tuple[str, cst.BaseExpression] | None:
        """The parameter of ``forward`` that decides, and the test: ``if images is not None:``."""
        if self._tree.function(use) is not self.forward:
            return None
        inner: cst.CSTNode = use
        for outer in self._tree.parents(use):
            if outer is self.forward:
                return None
            if isinstance(outer, cst.If) and inner is outer.body:
                name = self._given(outer.test)
                if name:
                    return name, outer.test
            if isinstance(outer, cst.IfExp) and inner is outer.body:
                name = self._given(outer.test)
                if name:
                    return name, outer.test
            inner = outer
        return None

    def _given(self, test: cst.BaseExpression) -> str:
        """The parameter with the default ``None`` that a test asks for: ``x is not None`` or plain ``x``."""
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            part = test.comparisons[0]
            if not isinstance(part.operator, cst.IsNot) or last_name(part.comparator) != "None":
                return ""
            test = test.left
        if not isinstance(test, cst.Name) or self.forward is None:
            return ""
        params = (*self.forward.params.params, *self.forward.params.kwonly_params)
        optional = any(p.name.value == test.value and is_none(p.default) for p in params)
        return test.value if optional and len(self._names.bindings(test.value, test)) == 1 else ""
