"""Models whose parameters ZeRO stage 3 spreads over the ranks: the engine, its module, and what the Trainer holds."""

from __future__ import annotations

import re

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import is_self, keyword, last_name
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.tree import Tree
from dslint.model.script.zero.hfloading import HfLoading

_MAX_STEPS = 5
_ENGINES = frozenset({"engine", "engine_module", "prepared_model", "prepared_module"})
# ``a, b = accelerator.prepare(a, b)``, where what is prepared is not known: only a model has parameters.
_NO_MODEL = re.compile(r"optim|sched|load|data|sampler|tokenizer", re.I)
_UNWRAP = frozenset({"unwrap_model", "_unwrap_model"})
_QUANTIZED = frozenset({"quantization_config", "load_in_4bit", "load_in_8bit"})
_OF_TRAINER = frozenset({"model", "model_wrapped", "deepspeed"})
# What is built inside is partitioned as it is built, unless ``enabled=`` says otherwise.
_INIT = frozenset(
    {
        "deepspeed.zero.Init",
        "deepspeed.runtime.zero.Init",
        "deepspeed.runtime.zero.partition_parameters.Init",
    }
)


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
        """A model that was partitioned when it was loaded or built, and that nothing has changed since."""
        things = {t for t in self._objects.things(node) if t.kind != "none"}
        if things and all(t.kind == "model" and t.made is not None for t in things):
            return all(t.made is not None and (self._is_told(t.made) or self._is_built(t.made)) for t in things)
        return self._is_loaded(node, 0)

    # -- initialized --------------------------------------------------------------------------------------------

    def _is_engine(self, node: cst.BaseExpression | None, steps: int) -> bool:
        if node is None or steps > _MAX_STEPS:
            return False
        kinds = {t.kind for t in self._objects.things(node)} - {"none"}
        if kinds and kinds <= _ENGINES:
            return True
        if kinds == {"prepared"}:
            return not _NO_MODEL.search(last_name(node))
        if isinstance(node, cst.IfExp):
            return self._is_engine(node.body, steps + 1) and self._is_engine(node.orelse, steps + 1)
        if isinstance(node, cst.Attribute):
            return self._is_attribute(node, steps)
        if isinstance(node, cst.Call) and self._names.called(node) in _UNWRAP and node.args:
            return self._is_engine(node.args[0].value, steps + 1)
        return isinstance(node, cst.Name) and self._is_named(node, steps)

    def _is_attribute(self, node: cst.Attribute, steps: int) -> bool:
        name = node.attr.value
        if name == "module":
            return self._is_engine(node.value, steps + 1)
        return (
            name in _OF_TRAINER
            and self._objects.kind(node.value) == "trainer"
            and (is_self(node.value) or self._has_trained(node, node.value))
        )

    def _is_named(self, node: cst.Name, steps: int) -> bool:
        found = self._names.bindings(node.value, node)
        before = [b for b in found if self._tree.position(b.node) < self._tree.position(node)]
        if self._is_trained(node, before):
            return True
        # Every value that the name may have is one: ``model.module if hasattr(model, "module") else model``.
        return bool(before) and all(b.kind == "assign" and self._is_engine(b.value, steps + 1) for b in before)

    def _is_trained(self, node: cst.Name, before: list[Binding]) -> bool:
        """``Trainer(model=model)`` and ``trainer.train()`` stand between the binding and here."""
        at = self._tree.position(node)
        start = max((self._tree.position(b.node) for b in before), default=-1)
        made = False
        for call in self._calls_around(node):
            if start < self._tree.position(call) < at and not self._objects.conditions.excludes(call, node):
                made = made or (self._objects.kind(call) == "trainer" and _takes(call, node.value))
                if made and _is_train(call) and self._objects.kind(_owner(call)) == "trainer":
                    return True
        return False

    def _has_trained(self, node: cst.Attribute, trainer: cst.BaseExpression) -> bool:
        """``trainer.train()`` stands before this use of ``trainer.model``, or the trainer comes from a caller."""
        text = self._tree.text(trainer)
        trained = [c for c in self._calls_around(node) if _is_train(c) and self._tree.text(_owner(c)) == text]
        if any(self._tree.position(call) < self._tree.position(node) for call in trained):
            return True
        # A helper that gets the trainer runs when all is done.
        bindings = self._names.bindings(trainer.value, trainer) if isinstance(trainer, cst.Name) else []
        return not trained and bool(bindings) and all(b.kind == "param" for b in bindings)

    def _calls_around(self, node: cst.CSTNode) -> list[cst.Call]:
        scope = self._tree.function(node) or self._tree.module
        return self._tree.own(scope, cst.Call)

    # -- loaded -------------------------------------------------------------------------------------------------

    def _is_told(self, call: cst.Call) -> bool:
        # A quantized model is loaded whole.
        is_quantized = any(a.keyword is not None and a.keyword.value in _QUANTIZED for a in call.args)
        return self._loading.is_load(call) and not is_quantized and self._loading.is_told_before(call)

    def _is_built(self, call: cst.Call) -> bool:
        """A transformers model, or one of a class of this file, inside ``with deepspeed.zero.Init(...):``."""
        blocks = (p for p in self._tree.parents(call) if isinstance(p, cst.With))
        entered = [i.item for block in blocks for i in block.items if isinstance(i.item, cst.Call)]
        inits = [c for c in entered if self._names.qualified(c.func) in _INIT]
        if not inits or any(a.star or (a.keyword and a.keyword.value == "enabled") for c in inits for a in c.args):
            return False
        owner = self._names.local_class(call.func.value, call.func) if isinstance(call.func, cst.Name) else None
        is_module = owner is not None and "torch.nn.Module" in self._names.class_bases(owner.name.value)
        return is_module or self._loading.is_load(call)

    def _is_loaded(self, node: cst.BaseExpression | None, steps: int) -> bool:
        """The class of the model is one of the project: what it is called says that it is a transformers model."""
        if node is None or steps > _MAX_STEPS:
            return False
        if isinstance(node, cst.Call):
            return self._is_told(node) or self._is_built(node)
        if isinstance(node, cst.Attribute):
            return self._is_loaded(self._names.single_value(node), steps + 1)
        found = self._names.bindings(node.value, node) if isinstance(node, cst.Name) else []
        if len(found) == 1 and isinstance(found[0].node, cst.Param):
            passed = self._names.callers.passed(found[0].node)
            return bool(passed) and all(self._is_loaded(value, steps + 1) for value in passed)
        # Branches that each load a model; anything else may have put whole weights into it.
        return bool(found) and all(b.kind == "assign" and self._is_loaded(b.value, steps + 1) for b in found)


def _takes(call: cst.Call, name: str) -> bool:
    model = keyword(call, "model")
    if model is None and call.args and call.args[0].keyword is None:
        model = call.args[0].value
    return isinstance(model, cst.Name) and model.value == name


def _owner(call: cst.Call) -> cst.BaseExpression:
    return call.func.value if isinstance(call.func, cst.Attribute) else call.func


def _is_train(call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "train"
