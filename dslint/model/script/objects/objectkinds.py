"""Which classes and calls make the objects of a training run: tables and how a qualified name is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.collective import frameworks
from dslint.model.trlclasses import TRL_ARGUMENTS


@dataclass(frozen=True, slots=True)
class Thing:
    """An object as far as the file shows it.

    ``kind``: see :class:`dslint.model.script.objects.Objects`; empty when unknown. ``made`` is the call that made it
    (for an engine and what comes with it ``deepspeed.initialize``), ``taken`` the call that it was handed to.
    """

    kind: str = ""
    made: cst.Call | None = None
    taken: cst.Call | None = None


UNKNOWN = Thing()
NOTHING = Thing("none")

INITIALIZE = "deepspeed.initialize"
# Results of ``deepspeed.initialize`` by position.
INITIALIZED = ("engine", "ds_optimizer", "ds_loader", "ds_scheduler")
# What becomes of an argument of a call: parameter -> (position, kind afterwards).
HANDED: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "engine": {
        "model": (1, "engine_module"),
        "optimizer": (2, "client_optimizer"),
        "lr_scheduler": (5, "client_scheduler"),
    },
    "ddp": {"module": (0, "ddp_module")},
    "fsdp": {"module": (0, "fsdp_module")},
    "sharded": {"module": (0, "fsdp")},
}
SHARD_IN_PLACE = ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")
# What ``accelerator.prepare`` makes of its arguments.
PREPARED = {
    "model": "prepared_model",
    "ddp": "prepared_model",
    "fsdp": "prepared_model",
    "optimizer": "prepared_optimizer",
    "loader": "prepared_loader",
    "scheduler": "prepared_scheduler",
    "prepared_model": "prepared_model",
}
PREPARE_ONE = {
    "prepare_model": "prepared_model",
    "prepare_optimizer": "prepared_optimizer",
    "prepare_data_loader": "prepared_loader",
    "prepare_scheduler": "prepared_scheduler",
}
# The model inside: ``.module``, ``accelerator.unwrap_model(...)``.
INNER = {
    "engine": "engine_module",
    "ddp": "ddp_module",
    "fsdp": "fsdp_module",
    "prepared_model": "prepared_module",
    "prepared": "prepared_module",
}
ATTRIBUTES = {
    ("engine", "optimizer"): "ds_optimizer",
    ("engine", "lr_scheduler"): "ds_scheduler",
    ("engine", "training_dataloader"): "ds_loader",
    ("trainer", "accelerator"): "accelerator",
    ("trainer", "args"): "training_arguments",
    **frameworks.ATTRIBUTES,
}
# Methods of models that return the model.
FLUENT = frozenset(
    {*("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "train", "eval", "requires_grad_", "to_empty")}
)
MODELS = frozenset(
    {"model", "engine", "ddp", "fsdp", "engine_module", "ddp_module", "fsdp_module", "prepared_model", "prepared"}
)

_CLASSES = {
    "torch.nn.parallel.DistributedDataParallel": "ddp",
    "torch.nn.parallel.distributed.DistributedDataParallel": "ddp",
    "torch.distributed.fsdp.FullyShardedDataParallel": "fsdp",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": "fsdp",
    "accelerate.Accelerator": "accelerator",
    "accelerate.accelerator.Accelerator": "accelerator",
    "accelerate.PartialState": "accelerator",
    "accelerate.state.PartialState": "accelerator",
    "accelerate.state.AcceleratorState": "accelerator",
    "deepspeed.DeepSpeedEngine": "engine",
    "deepspeed.runtime.engine.DeepSpeedEngine": "engine",
    "torch.nn.Module": "model",
    "torch.nn.Sequential": "model",
    "torch.utils.data.DataLoader": "loader",
    "torch.utils.data.dataloader.DataLoader": "loader",
    "torch.utils.data.DistributedSampler": "distributed_sampler",
    "torch.utils.data.distributed.DistributedSampler": "distributed_sampler",
    "torch.optim.Optimizer": "optimizer",
    "torch.optim.optimizer.Optimizer": "optimizer",
}
_OPTIMIZERS = (
    *("torch.optim.", "deepspeed.ops.adam.", "deepspeed.ops.lamb.", "deepspeed.ops.lion.", "deepspeed.ops.adagrad."),
    *("bitsandbytes.optim.", "apex.optimizers.", "torch_optimizer.", "transformers.AdamW", "transformers.Adafactor"),
    *("transformers.optimization.AdamW", "transformers.optimization.Adafactor"),
)
_SCHEDULERS = ("torch.optim.lr_scheduler.", "deepspeed.runtime.lr_schedules.")
_SCHEDULE_MAKERS = ("transformers.", "diffusers.optimization.")


def class_kind(qualified: str) -> str:
    """The kind of the instances of a class; empty for any other name."""
    found = _CLASSES.get(qualified) or frameworks.made_by(qualified)
    if found:
        return found
    last = qualified.rpartition(".")[2]
    if not last[:1].isupper():
        return ""
    if qualified.startswith(("transformers.", "trl.")):
        if last.endswith("Trainer"):
            return "trainer"
        if last.endswith("TrainingArguments") or (qualified.startswith("trl.") and last in TRL_ARGUMENTS):
            return "training_arguments"
    if qualified.startswith(_SCHEDULERS):
        return "scheduler"
    if qualified.startswith(_OPTIMIZERS) and not qualified.startswith("torch.optim.swa_utils."):
        return "optimizer"
    if qualified.startswith("torch.utils.data.") and last.endswith("Sampler"):
        return "sampler"
    if qualified.startswith("torch.nn.") and not qualified.startswith(("torch.nn.init", "torch.nn.utils")):
        return "" if last in ("Parameter", "DataParallel", "ParameterList", "ParameterDict") else "model"
    return ""


def function_kind(qualified: str) -> str:
    """The kind of what a library function returns: learning-rate schedules and models of transformers."""
    owner, _, last = qualified.rpartition(".")
    if qualified.startswith(_SCHEDULE_MAKERS) and last.startswith("get_") and "schedule" in last:
        return "scheduler"
    if last in ("from_pretrained", "from_config") and qualified.startswith("transformers."):
        name = owner.rpartition(".")[2]
        return "model" if "Model" in name or "LM" in name else ""
    return "model" if qualified == "torch.compile" else ""
