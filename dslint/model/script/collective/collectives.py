"""Which calls every rank must make together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from dslint.model.script.collective.frameworks import BY_KIND, function_family
from dslint.model.script.collective.sharded import ShardedCalls
from dslint.model.script.collective.vocabulary import (
    ACCELERATE_FUNCTIONS,
    ACCELERATE_ROOTS,
    ACCELERATOR,
    BARRIERS,
    CHECKPOINT_FUNCTIONS,
    CHECKPOINT_ROOTS,
    DEFAULT_GROUPS,
    DISTRIBUTED_ROOTS,
    ENGINE,
    ENGINE_MODULE,
    GROUP_POSITION,
    METHODS,
    MMENGINE,
    PREPARED,
    SHARDED_METHODS,
    TRAINER,
    TRAINING_ARGUMENTS,
)
from dslint.model.script.dotted import is_true, keyword, last_name
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.training.trainingstep import TrainingSteps
from dslint.model.script.tree import Tree

# Objects whose call is a forward pass. What accelerate prepared may be a loader, but that is never called.
_FORWARDS = ("engine", "engine_module", "prepared", "prepared_model")
# In the names of what makes or is such an object; the tables of ``objectkinds.py`` say which.
_MAKES_MODELS = re.compile(r"(?<!mm)engine|deepspeed|initialize|prepare|fully_?shard", re.IGNORECASE)
_MODEL = re.compile(r"(?:^|_)(?:model|unet|net|transformer)$")
_WRAPS = re.compile(r"DistributedDataParallel|FullySharded|fully_?shard")
# Wrappers whose backward exchanges the gradients.
_EXCHANGING = frozenset({"ddp", "fsdp"})
# Kind -> family, and the methods that wait for all ranks.
_METHODS: dict[str, tuple[str, Mapping[str, bool]]] = {
    "engine": ("engine", ENGINE),
    "engine_module": ("engine", ENGINE_MODULE),
    "prepared": ("engine", {name: ENGINE[name] for name in PREPARED}),
    "prepared_model": ("engine", {name: ENGINE[name] for name in PREPARED}),
    "accelerator": ("accelerate", ACCELERATOR),
    "trainer": ("trainer", TRAINER),
    "training_arguments": ("trainer", TRAINING_ARGUMENTS),
    **{kind: (family.family, family.methods) for kind, family in BY_KIND.items()},
}


@dataclass(frozen=True, slots=True)
class Collective:
    """A call that waits for all ranks.

    ``key`` names the operation for pairing (all barriers are one operation, whatever the wrapper).
    ``family``: ``torch`` | ``engine`` | ``accelerate`` | ``trainer`` | ``mmengine`` | ``project``, or one of
    ``frameworks.py``.
    ``needs_stage3``: it only talks to other ranks when parameters are partitioned (ZeRO stage 3).
    """

    key: str
    family: str
    needs_stage3: bool = False

    @property
    def averages(self) -> bool:
        """It is the backward of a model that DDP or FSDP wraps: of one more batch it averages the gradients."""
        return self.key == "backward" and self.family == "torch"


class Collectives:
    """Recognises the all-ranks calls of one module."""

    def __init__(self, tree: Tree, names: Names, objects: Objects) -> None:
        self._tree = tree
        self._names = names
        self._objects = objects
        self._steps = TrainingSteps(tree, names, objects)
        self._sharded = ShardedCalls(names, objects)
        self._known: dict[int, Collective | None] = {}

    def of(self, call: cst.Call) -> Collective | None:
        """The collective that a call is, or ``None``; calls on a subgroup are not for all ranks."""
        if id(call) not in self._known:
            self._known[id(call)] = self._of(call)
        return self._known[id(call)]

    def _of(self, call: cst.Call) -> Collective | None:
        name = self._names.qualified(call.func)
        if self._names.is_own(call.func, self._names.own.collectives):
            return Collective((name or self._names.called(call)).rpartition(".")[2], "project")
        if name is not None:
            return self._function(name, call)
        found = self._method(call, call.func) if isinstance(call.func, cst.Attribute) else None
        return found or self._forward(call.func)

    def _function(self, name: str, call: cst.Call) -> Collective | None:
        module, _, function = name.rpartition(".")
        if module in DISTRIBUTED_ROOTS and function in GROUP_POSITION:
            return None if self._on_subgroup(call, function) else Collective(_key(function), "torch")
        if name == "deepspeed.initialize":
            return Collective("initialize", "engine")
        if name.startswith("deepspeed.") and function == "GatheredParameters":
            return Collective("GatheredParameters", "engine", needs_stage3=True)
        if self._objects.class_kind(name) == "ddp":
            return Collective("DistributedDataParallel", "torch")
        if module in CHECKPOINT_ROOTS and function in CHECKPOINT_FUNCTIONS:
            alone = any(keyword(call, k) is not None for k in ("no_dist", "process_group"))
            return None if alone else Collective(f"checkpoint.{function}", "torch")
        if module.startswith("mmengine.dist") and function in MMENGINE:
            return None if keyword(call, "group") else Collective(_key(function), "mmengine")
        if module in ACCELERATE_ROOTS and function in ACCELERATE_FUNCTIONS:
            return Collective(_key(function), "accelerate")
        if self._sharded.function(module, function, call):
            return Collective(function, "fsdp")
        return self._framework(module, function, call)

    def _framework(self, module: str, function: str, call: cst.Call) -> Collective | None:
        family = function_family(module, function)
        if not family or keyword(call, "group") is not None:
            return None
        return Collective(_key(function), family)

    def _method(self, call: cst.Call, called: cst.Attribute) -> Collective | None:
        method = called.attr.value
        if method in SHARDED_METHODS and self._sharded.method(called):
            return Collective(method, "fsdp")
        if method not in METHODS:
            return None
        kind = self._objects.likely(called.value)
        if not kind and method == "push_to_hub" and last_name(called.value) == "trainer":
            kind = "trainer"  # nothing else that is called a trainer uploads in this way
        if not kind and method == "backward" and self._exchanges_gradients(call, called.value):
            return Collective("backward", "torch")
        family, methods = _METHODS.get(kind, ("", {}))
        if method not in methods or not self._takes_part(call, called, kind):
            return None
        return Collective(_key(method), family, methods[method])

    def _takes_part(self, call: cst.Call, called: cst.Attribute, kind: str) -> bool:
        """The arguments make the call wait for all ranks."""
        method = called.attr.value
        if method in ("log", "log_dict"):
            return kind == "lightning_module" and is_true(call, "sync_dist")
        if kind == "accelerator" and method in ("save_model", "get_state_dict") and call.args:
            return not self._is_copy(call.args[0].value)
        if method == "prepare":
            return keyword(call, "evaluation_mode") is None and any(self._is_model(a) for a in call.args)
        if kind == "lightning_trainer":
            # Lightning calls this hook up to 1.6; its ``save_checkpoint`` ends in a barrier from 2.1 on.
            hook = self._names.tree.function(call) if method == "save_checkpoint" else None
            if hook is not None and hook.name.value == "on_keyboard_interrupt":
                return False
            made = self._objects.made(called.value)
            return made is None or not any(_is_one(keyword(made, name)) for name in ("devices", "gpus"))
        return all(keyword(call, name) is None for name in ("group", "process_group"))

    def _is_copy(self, model: cst.BaseExpression) -> bool:
        """``ema = copy.deepcopy(model)`` that nobody prepares: every rank holds all of it."""
        made = self._names.single_value(model)
        if type(made) is not cst.Call or last_name(made.func) != "deepcopy":
            return False
        prepared = (c for c in self._tree.every(cst.Call) if last_name(c.func).startswith("prepare"))
        return last_name(model) not in {last_name(a.value) for c in prepared for a in c.args}

    def _exchanges_gradients(self, call: cst.Call, loss: cst.BaseExpression) -> bool:
        """``loss.backward()`` of a loss that a DDP or FSDP model certainly gave, outside of ``no_sync()``."""
        if not self._has_wrapper or any(a.keyword is None for a in call.args):
            return False
        if isinstance(loss, cst.Call) and last_name(loss.func) == "scale" and len(loss.args) == 1:
            loss = loss.args[0].value
        if all(self._steps.forward_kind(f) not in _EXCHANGING for f in self._steps.forwards(loss)):
            return False
        outer = (n for n in self._tree.parents(call) if isinstance(n, cst.With))
        return not any("sync" in self._tree.text(item.item) for n in outer for item in n.items)

    def _is_model(self, arg: cst.Arg) -> bool:
        """An argument of ``accelerator.prepare`` that DDP, FSDP or DeepSpeed will wrap."""
        if arg.star or arg.keyword is not None:
            return False
        return self._objects.likely(arg.value) == "model" or _MODEL.search(last_name(arg.value)) is not None

    def _forward(self, called: cst.BaseExpression) -> Collective | None:
        """``engine(batch)``: every forward of a partitioned model gathers its parameters."""
        if not (isinstance(called, cst.Name | cst.Attribute) and self._has_models):
            return None
        kind = self._objects.called(called)
        if kind in _FORWARDS:
            return Collective("forward", "engine", needs_stage3=True)
        return Collective("forward", "fsdp") if kind == "fsdp" and self._sharded.is_sharded(called) else None

    @cached_property
    def _has_models(self) -> bool:
        """The file has some word by which an engine, a prepared or a sharded model comes into it: most have none."""
        if self._names.own.engines:
            return True
        return any(map(_MAKES_MODELS.search, self._names.words))

    @cached_property
    def _has_wrapper(self) -> bool:
        """The file names a wrapper that exchanges gradients."""
        return any(map(_WRAPS.search, self._names.words))

    def _on_subgroup(self, call: cst.Call, function: str) -> bool:
        group = keyword(call, "group")
        position = GROUP_POSITION[function]
        if (
            group is None
            and len(call.args) > position
            and not any(a.keyword or a.star for a in call.args[: position + 1])
        ):
            group = call.args[position].value
        if group is None:
            return any(a.star == "**" for a in call.args)
        return last_name(group) not in DEFAULT_GROUPS


def _key(function: str) -> str:
    return "barrier" if function in BARRIERS else function


def _is_one(node: cst.BaseExpression | None) -> bool:
    return isinstance(node, cst.Integer) and node.value == "1"
