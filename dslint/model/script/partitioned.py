"""Models whose parameters ZeRO stage 3 spreads over the ranks: the engine, its module, and what the Trainer holds."""

from __future__ import annotations

import re

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import is_self, last_name
from dslint.model.script.hfloading import HfLoading
from dslint.model.script.names import Names
from dslint.model.script.objects import Objects
from dslint.model.script.tree import Tree

_MAX_STEPS = 5
_ENGINES = frozenset({"engine", "engine_module"})
# ``model, optimizer, loader = accelerator.prepare(...)``: only the model has parameters.
_NO_MODEL = re.compile(r"optim|sched|load|data|sampler|tokenizer", re.I)
_UNWRAP = frozenset({"unwrap_model", "_unwrap_model", "unwrap_model_for_generation"})
_SAME_MODEL = frozenset({"eval", "train", "cuda", "to", "half", "bfloat16", "float"})


class Partitioned:
    """Answers whether an expression is a model that is partitioned where it stands, if the run is at stage 3."""

    def __init__(self, tree: Tree, names: Names, objects: Objects, loading: HfLoading) -> None:
        self._tree = tree
        self._names = names
        self._objects = objects
        self._loading = loading

    def is_engine(self, node: cst.BaseExpression) -> bool:
        """The model of a DeepSpeed engine, or of one that accelerate or the Trainer makes: it has been initialized."""
        return self._is_engine(node, 0)

    def is_loaded(self, node: cst.BaseExpression) -> bool:
        """A transformers model that was partitioned when it was loaded, and that nothing has changed since."""
        return self._is_loaded(node, 0)

    def _is_engine(self, node: cst.BaseExpression | None, steps: int) -> bool:
        if node is None or steps > _MAX_STEPS:
            return False
        kind = self._objects.kind(node)
        if kind in _ENGINES:
            return True
        if kind == "prepared":
            return not _NO_MODEL.search(last_name(node))
        if isinstance(node, cst.IfExp):
            return self._is_engine(node.body, steps + 1) and self._is_engine(node.orelse, steps + 1)
        if isinstance(node, cst.Attribute):
            return self._is_attribute(node, steps)
        if isinstance(node, cst.Call):
            return self._is_unwrapped(node, steps)
        return isinstance(node, cst.Name) and self._is_named(node, steps)

    def _is_attribute(self, node: cst.Attribute, steps: int) -> bool:
        name = node.attr.value
        if name == "module":
            return self._is_engine(node.value, steps + 1)
        if name in ("model", "model_wrapped", "deepspeed"):
            return self._objects.kind(node.value) == "trainer" and self._has_trained(node, node.value)
        return False

    def _is_unwrapped(self, node: cst.Call, steps: int) -> bool:
        name = last_name(node.func)
        if name in _UNWRAP and len(node.args) >= 1:
            return self._is_engine(node.args[0].value, steps + 1)
        return name in _SAME_MODEL and isinstance(node.func, cst.Attribute) and self._is_engine(node.func.value, steps + 1)

    def _is_named(self, node: cst.Name, steps: int) -> bool:
        found = self._names.bindings(node.value, node)
        if not found:
            return False
        if all(b.kind == "param" for b in found):
            return self._is_passed(found[0], steps)
        before = [b for b in found if self._tree.position(b.node) < self._tree.position(node)]
        if self._is_trained(node, before):
            return True
        # Every value that the name may have is one.
        return bool(before) and all(b.kind == "assign" and self._is_engine(b.value, steps + 1) for b in before)

    def _is_passed(self, param: Binding, steps: int) -> bool:
        """Every call in this file passes such a model."""
        if not isinstance(param.node, cst.Param):
            return False
        passed = list(self._objects.passed(param.node))
        return bool(passed) and all(self._is_engine(value, steps + 2) for value in passed)

    def _is_trained(self, node: cst.Name, before: list[Binding]) -> bool:
        """``Trainer(model=model)`` and ``trainer.train()`` stand between the binding and here."""
        at = self._tree.position(node)
        start = max((self._tree.position(b.node) for b in before), default=at)
        makes = trains = False
        for call in self._calls_in(self._tree.function(node) or self._tree.module):
            if start < self._tree.position(call) < at:
                makes = makes or (self._objects.kind(call) == "trainer" and self._takes(call, node.value))
                trains = trains or (makes and _is_train(call) and self._objects.kind(_owner(call)) == "trainer")
        return trains

    def _has_trained(self, node: cst.Attribute, trainer: cst.BaseExpression) -> bool:
        """Inside a trainer; or ``trainer.train()`` stands before this use of ``trainer.model``."""
        if is_self(trainer):
            return True
        at = self._tree.position(node)
        text = self._tree.module.code_for_node(trainer)
        for call in self._calls_in(self._tree.function(node) or self._tree.module):
            if _is_train(call) and self._tree.position(call) < at:
                return self._tree.module.code_for_node(_owner(call)) == text
        # A helper that gets the trainer is called when all is done.
        return isinstance(trainer, cst.Name) and all(
            b.kind == "param" for b in self._names.bindings(trainer.value, trainer)
        )

    def _calls_in(self, scope: cst.CSTNode) -> list[cst.Call]:
        return [n for n in self._tree.own_nodes(scope) if isinstance(n, cst.Call)]

    @staticmethod
    def _takes(call: cst.Call, name: str) -> bool:
        model = next((a.value for a in call.args if a.keyword is not None and a.keyword.value == "model"), None)
        if model is None and call.args and call.args[0].keyword is None:
            model = call.args[0].value
        return isinstance(model, cst.Name) and model.value == name

    def _is_loaded(self, node: cst.BaseExpression | None, steps: int) -> bool:
        if node is None or steps > _MAX_STEPS:
            return False
        if isinstance(node, cst.Call):
            return self._loading.is_load(node) and bool(self._loading.tellers_before(node))
        if isinstance(node, cst.Attribute):
            return self._is_loaded(self._names.single_value(node), steps + 1)
        if not isinstance(node, cst.Name):
            return False
        found = self._names.bindings(node.value, node)
        if len(found) != 1 and not all(b.kind == "param" for b in found):
            # Branches that each load a model; anything else between may have put whole weights into it.
            return bool(found) and all(b.kind == "assign" and self._is_loaded(b.value, steps + 1) for b in found)
        if not found:
            return False
        if found[0].kind == "param" and isinstance(found[0].node, cst.Param):
            passed = list(self._objects.passed(found[0].node))
            return bool(passed) and all(self._is_loaded(value, steps + 2) for value in passed)
        return found[0].kind == "assign" and self._is_loaded(found[0].value, steps + 1)


def _owner(call: cst.Call) -> cst.BaseExpression:
    return call.func.value if isinstance(call.func, cst.Attribute) else call.func


def _is_train(call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "train"
