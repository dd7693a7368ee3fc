"""Which release of DeepSpeed knows which key, and where well-known wrong keys belong.

The schema describes the newest release. This is what it cannot say: since when a section refuses unknown keys, from
which release on a key exists. Releases were sampled; a key listed under ``x`` is absent in ``x`` for certain.
"""

from __future__ import annotations

from dslint.model.deepspeed.schema import load_schema, properties
from dslint.model.deepspeed.suggest import closest
from dslint.parse.data import split_pointer

# Section -> release in which it became a pydantic model that forbids unknown keys. Others: before 0.9.
STRICT_SINCE = {
    "fp16": "0.17.1",
    "bf16": "0.17.1",
    "bfloat16": "0.17.1",
    "compile": "0.16.6",
    "tensor_parallel": "0.16.4",
}

# Keys of ``fp16`` that people copy into ``bf16``: read by no release, refused since bf16 is a model.
FP16_ONLY = ("loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale", "auto_cast")
# The section of 0.13.2 to 0.14.3 (runtime/compiler.py) had other keys.
COMPILE_LEGACY = ("enabled", "disable", "backend", "kwargs")

_ZERO_ABSENT_IN = {
    "0.9.0": (
        "zero_hpz_partition_size",
        "zero_quantized_weights",
        "zero_quantized_nontrainable_weights",
        "zero_quantized_gradients",
        "override_module_apply",
        "pipeline_loading_checkpoint",
    ),
    "0.10.3": ("offload_optimizer/ratio",),
    "0.12.3": ("use_multi_rank_bucket_allreduce",),
    "0.12.6": ("use_all_reduce_for_fetch_params",),
    "0.15.4": ("module_granularity_threshold",),
    "0.16.3": ("log_trace_cache_warnings",),
    "0.16.9": ("zenflow", "enable_sanity_checks"),
    "0.17.6": ("leaf_module", "offload_optimizer/super_offload", "offload_optimizer/cpuadam_cores_perc"),
    "0.18.3": ("allgather_sequential", "save_muon_momentum_buffer_in_memory"),
    "0.19.6": ("compute_grad_norm", "parameter_alignment"),
}
ABSENT_IN = {f"/zero_optimization/{key}": version for version, keys in _ZERO_ABSENT_IN.items() for key in keys} | {
    "/bf16/bf16_master_weights_and_grads": "0.18.2",
    "/bf16/bf16_optimizer_states": "0.18.2",
}

# Value 0 became an error later than negative values.
ZERO_REFUSED_SINCE = {"/zero_optimization/reduce_bucket_size": "0.19.6", "/hybrid_engine/max_out_tokens": "0.19.7"}

# Names from other tools, older texts and DeepSpeed's own log -> the key that is meant.
_MEANT = {
    "max_grad_norm": "gradient_clipping",
    "grad_clip": "gradient_clipping",
    "clip_grad": "gradient_clipping",
    "gradient_clip_val": "gradient_clipping",
    "zero": "zero_optimization",
    "zero_config": "zero_optimization",
    "batch_size": "train_batch_size",
    "global_batch_size": "train_batch_size",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "train_micro_batch_size": "train_micro_batch_size_per_gpu",
    "micro_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
    "micro_batch_per_gpu": "train_micro_batch_size_per_gpu",
    "train_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
    "per_device_train_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation": "gradient_accumulation_steps",
    "grad_accum_steps": "gradient_accumulation_steps",
    "accumulate_grad_batches": "gradient_accumulation_steps",
    "lr_scheduler": "scheduler",
    "comms_config": "comms_logger",
    "monitor_config": "tensorboard",
    "tensor_parallel_size": "tensor_parallel",
    "flops_profiler_config": "flops_profiler",
    "activation_checkpointing_config": "activation_checkpointing",
    "aio_config": "aio",
    "zero_stage": "zero_optimization",
    "precision": "bf16",
    "mixed_precision": "bf16",
}
# Too common to say where a key of this name belongs.
_EVERYWHERE = {"enabled", "type", "params", "dtype", "description", "name", "device", "mode", "project", "group"}


def known_top_level() -> list[str]:
    """Every key that DeepSpeed reads or refuses at the top level."""
    return list(properties())


def misspelled(key: str, section: str = "") -> str | None:
    """The live key of a section that ``key`` is a misspelling of."""
    live = [name for name, schema in properties(section).items() if schema.get("not") != {}]
    return closest(key, live)


def meant(key: str) -> str | None:
    """The top-level key that a well-known wrong name stands for."""
    return _MEANT.get(key.casefold())


def home_of(key: str, not_in: str = "") -> str | None:
    """The pointer of the section to which a key belongs when exactly one section knows it (ZeRO's first)."""
    if key in _EVERYWHERE:
        return None
    if not_in and key in properties():
        return ""
    homes = [f"/{name}" for name, schema in load_schema()["properties"].items() if key in schema.get("properties", {})]
    homes = [h for h in homes if h not in (not_in, "/bfloat16")]
    if "/zero_optimization" in homes:
        return "/zero_optimization"
    return homes[0] if len(homes) == 1 else None


def absent_in(pointer: str) -> str | None:
    """The newest release that certainly does not know a key that today's release knows."""
    parts = split_pointer(pointer)
    parts[-1] = parts[-1].removeprefix("stage3_")
    return ABSENT_IN.get("/" + "/".join(parts))


def strict_since(pointer: str) -> str | None:
    """The release that began to refuse unknown keys in the section of a pointer; ``None``: older than 0.9."""
    return STRICT_SINCE.get(split_pointer(pointer)[0])
