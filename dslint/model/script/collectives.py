"""Which calls every rank must make together."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.objects import Objects
from dslint.model.script.vocabulary import (
    ACCELERATE_FUNCTIONS,
    ACCELERATOR,
    BARRIERS,
    CHECKPOINT_FUNCTIONS,
    CHECKPOINT_ROOTS,
    DEFAULT_GROUPS,
    DISTRIBUTED_ROOTS,
    ENGINE,
    GROUP_POSITION,
    METHODS,
    MMENGINE,
    PREPARED,
    TRAINER,
)

# Objects whose call is a forward pass. What accelerate prepared may be a loader, but that is never called.
_FORWARDS = ("engine", "engine_module", "prepared", "prepared_model")


@dataclass(frozen=True, slots=True)
class Collective:
    """A call that waits for all ranks.

    ``key`` names the operation for pairing (all barriers are one operation, whatever the wrapper).
    ``family``: ``torch`` | ``engine`` | ``accelerate`` | ``trainer`` | ``mmengine`` | ``project``.
    ``needs_stage3``: it only talks to other ranks when parameters are partitioned (ZeRO stage 3).
    """

    key: str
    family: str
    needs_stage3: bool = False


class Collectives:
    """Recognises the all-ranks calls of one module."""

    def __init__(self, names: Names, objects: Objects) -> None:
        self._names = names
        self._objects = objects

    def of(self, call: cst.Call) -> Collective | None:
        """The collective that a call is, or ``None``; calls on a subgroup are not for all ranks."""
        name = self._names.qualified(call.func)
        if self._names.is_own(call.func, self._names.own.collectives):
            return Collective((name or last_name(call.func)).rpartition(".")[2], "project")
        if name is not None:
            return self._function(name, call)
        found = self._method(call.func) if isinstance(call.func, cst.Attribute) else None
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
            alone = any(_keyword(call, k) is not None for k in ("no_dist", "process_group"))
            return None if alone else Collective(f"checkpoint.{function}", "torch")
        if module.startswith("mmengine.dist") and function in MMENGINE:
            return None if _keyword(call, "group") else Collective(_key(function), "mmengine")
        if module in ("accelerate.utils", "accelerate.utils.operations") and function in ACCELERATE_FUNCTIONS:
            return Collective(_key(function), "accelerate")
        return None

    def _method(self, called: cst.Attribute) -> Collective | None:
        method = called.attr.value
        if method not in METHODS:
            return None
        kind = self._objects.likely(called.value)
        if not kind and isinstance(called.value, cst.Call) and last_name(called.value.func) == "super":
            return None
        if kind == "engine" and method in ENGINE:
            return Collective(_key(method), "engine", ENGINE[method])
        if kind == "engine_module" and method in ("generate", "chat", "forward"):
            return Collective(method, "engine", needs_stage3=True)
        if kind == "accelerator" and method in ACCELERATOR:
            return Collective(_key(method), "accelerate", ACCELERATOR[method])
        if kind in ("prepared", "prepared_model") and method in PREPARED:
            return Collective(_key(method), "engine", ENGINE[method])
        if kind == "trainer" and method in TRAINER:
            return Collective(method, "trainer", TRAINER[method])
        return None

    def _forward(self, called: cst.BaseExpression) -> Collective | None:
        """``engine(batch)``: every forward of a partitioned model gathers its parameters."""
        if isinstance(called, cst.Name | cst.Attribute) and self._objects.likely(called) in _FORWARDS:
            return Collective("forward", "engine", needs_stage3=True)
        return None

    def _on_subgroup(self, call: cst.Call, function: str) -> bool:
        group = _keyword(call, "group")
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


def _keyword(call: cst.Call, name: str) -> cst.BaseExpression | None:
    return next((a.value for a in call.args if a.keyword is not None and a.keyword.value == name), None)
