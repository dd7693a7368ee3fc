"""Which calls every rank must make together."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.model.script.names import Names, last_name
from dslint.model.script.objects import Objects


@dataclass(frozen=True, slots=True)
class Collective:
    """A call that waits for all ranks.

    ``key`` names the operation for pairing (all barriers are one operation, whatever the wrapper).
    ``family``: ``torch`` | ``engine`` | ``accelerate`` | ``trainer`` | ``mmengine``.
    ``needs_stage3``: it only talks to other ranks when parameters are partitioned (ZeRO stage 3).
    """

    key: str
    family: str
    needs_stage3: bool = False


# Functions of torch.distributed and its look-alikes: the position of their ``group`` argument.
_GROUP_POSITION = {
    "barrier": 0,
    "monitored_barrier": 0,
    "all_reduce": 2,
    "all_gather": 2,
    "all_gather_object": 2,
    "all_gather_into_tensor": 2,
    "_all_gather_base": 2,
    "all_gather_coalesced": 2,
    "all_reduce_coalesced": 2,
    "reduce": 3,
    "reduce_scatter": 3,
    "reduce_scatter_tensor": 3,
    "broadcast": 2,
    "broadcast_object_list": 2,
    "gather": 3,
    "gather_object": 3,
    "scatter": 3,
    "scatter_object_list": 3,
    "all_to_all": 2,
    "all_to_all_single": 4,
}
_MMENGINE = frozenset(
    {
        *("barrier", "all_reduce", "all_gather", "gather", "broadcast", "sync_random_seed", "broadcast_object_list"),
        *("all_gather_object", "gather_object", "collect_results", "collect_results_cpu", "collect_results_gpu"),
        *("all_reduce_dict", "all_reduce_params"),
    }
)
_ACCELERATE_FUNCTIONS = frozenset(
    {
        *("wait_for_everyone", "gather", "gather_object", "broadcast", "broadcast_object_list", "reduce"),
        *("pad_across_processes", "synchronize_rng_states"),
    }
)
_ENGINE: dict[str, bool] = {
    "save_checkpoint": False,
    "step": False,
    "backward": False,
    "train_batch": False,
    "eval_batch": False,
    "save_16bit_model": True,
    "save_fp16_model": True,
    "_zero3_consolidated_16bit_state_dict": True,
    "generate": True,
    "forward": True,
}
_ACCELERATOR: dict[str, bool] = {
    "wait_for_everyone": False,
    "gather": False,
    "gather_for_metrics": False,
    "reduce": False,
    "pad_across_processes": False,
    "get_state_dict": True,
    "save_state": True,
}
_TRAINER: dict[str, bool] = {
    "train": False,
    "evaluate": False,
    "predict": False,
    "save_model": True,
    "push_to_hub": True,
}
_BARRIERS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone", "synchronize"})
_DISTRIBUTED_ROOTS = (
    "torch.distributed",
    "deepspeed.comm",
    "deepspeed.comm.comm",
    "torch.distributed.distributed_c10d",
)
_DEFAULT_GROUPS = frozenset({"None", "WORLD"})


class Collectives:
    """Recognises the all-ranks calls of one module."""

    def __init__(self, names: Names, objects: Objects) -> None:
        self._names = names
        self._objects = objects

    def of(self, call: cst.Call) -> Collective | None:
        """The collective that a call is, or ``None``; calls on a subgroup are not for all ranks."""
        name = self._names.qualified(call.func)
        if name is not None:
            return self._function(name, call)
        if isinstance(call.func, cst.Attribute):
            return self._method(call.func)
        return self._forward(call.func)

    def _function(self, name: str, call: cst.Call) -> Collective | None:
        module, _, function = name.rpartition(".")
        if module in _DISTRIBUTED_ROOTS and function in _GROUP_POSITION:
            return None if self._on_subgroup(call, function) else Collective(_key(function), "torch")
        if name == "deepspeed.initialize":
            return Collective("initialize", "engine")
        if name in ("deepspeed.zero.GatheredParameters", "deepspeed.runtime.zero.GatheredParameters"):
            return Collective("GatheredParameters", "engine", needs_stage3=True)
        if module.startswith("mmengine.dist") and function in _MMENGINE:
            return None if _keyword(call, "group") else Collective(_key(function), "mmengine")
        if module in ("accelerate.utils", "accelerate.utils.operations") and function in _ACCELERATE_FUNCTIONS:
            return Collective(_key(function), "accelerate")
        return None

    def _method(self, called: cst.Attribute) -> Collective | None:
        method = called.attr.value
        if method not in _METHODS:
            return None
        kind = self._objects.kind(called.value)
        if not kind and isinstance(called.value, cst.Call) and last_name(called.value.func) == "super":
            return None
        if kind == "engine" and method in _ENGINE:
            return Collective(_key(method), "engine", _ENGINE[method])
        if kind == "engine_module" and method in ("generate", "forward"):
            return Collective(method, "engine", needs_stage3=True)
        if kind == "accelerator" and method in _ACCELERATOR:
            return Collective(_key(method), "accelerate", _ACCELERATOR[method])
        if kind == "trainer" and method in _TRAINER:
            return Collective(method, "trainer", _TRAINER[method])
        return None

    def _forward(self, called: cst.BaseExpression) -> Collective | None:
        """``engine(batch)``: every forward of a partitioned model gathers its parameters."""
        if isinstance(called, cst.Name) and self._objects.kind(called) in ("engine", "engine_module"):
            return Collective("forward", "engine", needs_stage3=True)
        return None

    def _on_subgroup(self, call: cst.Call, function: str) -> bool:
        group = _keyword(call, "group")
        position = _GROUP_POSITION[function]
        if (
            group is None
            and len(call.args) > position
            and not any(a.keyword or a.star for a in call.args[: position + 1])
        ):
            group = call.args[position].value
        if group is None:
            return any(a.star == "**" for a in call.args)
        return last_name(group) not in _DEFAULT_GROUPS


_METHODS = frozenset({*_ENGINE, *_ACCELERATOR, *_TRAINER})


def _key(function: str) -> str:
    return "barrier" if function in _BARRIERS else function


def _keyword(call: cst.Call, name: str) -> cst.BaseExpression | None:
    return next((a.value for a in call.args if a.keyword is not None and a.keyword.value == name), None)
