"""Is this file a DeepSpeed config, or an accelerate one? By content as well as by name, and never by a guess.

A first look at the bytes (``may_be_...``) spares the parse of the thousands of other JSON and YAML files of a project;
the second look (``is_...``) weighs the keys of the parsed data. Misspelt keys count, or the files that need a linter
most would be passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

JSON_SUFFIXES = (".json", ".jsonc", ".hjson", ".json5")
YAML_SUFFIXES = (".yaml", ".yml")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keys that no other tool writes at the top level of a file: one is enough.
_STRONG = _words(
    "zero_optimization train_micro_batch_size_per_gpu zero_allow_untested_optimizer zero_force_ds_cpu_optimizer "
    "wall_clock_breakdown steps_per_print prescale_gradients gradient_predivide_factor communication_data_type "
    "seq_parallel_communication_data_type flops_profiler comms_logger hybrid_engine compression_training "
    "quantize_training data_efficiency torch_autocast sparse_attention progressive_layer_drop csv_monitor "
    "memory_breakdown fp32_allreduce use_data_before_expert_parallelism datastates_ckpt"
)
# Keys that DeepSpeed shares with other tools.
_SHARED = _words(
    "train_batch_size gradient_accumulation_steps gradient_clipping fp16 bf16 bfloat16 amp optimizer scheduler "
    "activation_checkpointing curriculum_learning autotuning elasticity eigenvalue aio tensorboard wandb comet timers "
    "checkpoint data_types compile tensor_parallel expert_parallel pipeline sequence_parallel_size nebula "
    "weight_quantization dump_state sparse_gradients disable_allgather monitor_config comms_config log_level"
)
_ZERO_KEYS = _words(
    "stage overlap_comm contiguous_gradients reduce_scatter reduce_bucket_size allgather_partitions "
    "allgather_bucket_size offload_optimizer offload_param sub_group_size cpu_offload stage3_max_live_parameters "
    "stage3_max_reuse_distance stage3_prefetch_bucket_size stage3_param_persistence_threshold "
    "stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save round_robin_gradients"
)
_SCHEDULERS = _words("WarmupLR WarmupDecayLR WarmupCosineLR OneCycle LRRangeTest")
_OPTIMIZERS = _words("OneBitAdam ZeroOneAdam OneBitLamb FusedAdam FusedLamb DeepSpeedCPUAdam CPUAdam")
# Keys of other files with a batch size in them: model configs, Trainer states and arguments, packages, experiments.
_FOREIGN = _words(
    "architectures model_type tokenizer_class _name_or_path log_history global_step per_device_train_batch_size "
    "output_dir model_name_or_path dependencies devDependencies scripts compute_environment distributed_type "
    "ds_config exp_id num_hidden_layers vocab_size properties "
    # GPT-NeoX writes its model and its training beside DeepSpeed's keys.
    "num_layers hidden_size num_attention_heads seq_length max_position_embeddings pipe_parallel_size "
    "model_parallel_size train_iters"
)
_STRONG_NAME = re.compile(
    r"ds[_-]?conf|ds[_-]z(ero)?[_-]?\d|deepspeed.*conf|conf.*deepspeed|^(ds|deepspeed)[_-]?(zero|stage|config|offload)"
    r"|^(ds[_-]?)?zero[_-]?(stage)?[_-]?[0123]|deepspeed\.\w+$|^ds\.json$",
    re.I,
)
_SECTION_NAME = re.compile(r"deepspeed|^ds_?(?:conf|cfg|param)", re.I)
_CONFIG_NAME = re.compile(r"^(ds|deepspeed)[_-]?config", re.I)
_BYTES = (
    rb"zero_?(opt|allow|force)|train_(micro_)?batch|gradient_(acc|clip|prediv)|steps_per_print|wall_clock|prescale_gr"
    rb"|communication_data|flops_prof|activation_check|comms_logger|hybrid_engine|compression_train|quantize_train"
    rb"|data_effic|torch_autocast|sparse_atten|progressive_layer|csv_monitor|memory_breakd|fp32_allreduce"
    rb"|data_before_expert|datastates|overlap_comm|reduce_(bucket|scatter)|allgather_|offload_(opt|param)"
    rb"|stage3_|sub_group|round_robin|fp16|bf16|bfloat16|Warmup\w*LR|OneCycle|LRRangeTest|contiguous_grad|cpu_offload"
)
_ENOUGH = 3.0
_FOREIGN_KEYS = 3
# DeepSpeed reads some sixty keys; a data file with thousands is not worth the comparison.
_MOST_KEYS = 200
# The largest known config has 9 kB; data files with the same words in them have megabytes.
_MOST_BYTES = 300_000


def may_be_deepspeed_config(name: str, raw: bytes) -> bool:
    """A cheap look at name and bytes: False means certainly not, True means parse it."""
    base = _base(name)
    if not _json_like(base):
        return False
    if b"{%" in raw:  # a Jinja template
        return False
    if len(raw) > _MOST_BYTES and not _CONFIG_NAME.search(base):
        return False
    if _STRONG_NAME.search(base):
        return True
    if raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        return False
    return re.search(_BYTES, raw, re.I) is not None


def is_deepspeed_config(name: str, data: Any) -> bool:
    """Whether parsed JSON is a config that ``deepspeed.initialize`` would read.

    Templates (see :func:`is_template`) are not: nobody trains with them as they stand.
    """
    base = _base(name)
    if not _json_like(base):
        return False
    if not isinstance(data, dict) or not data:
        # Empty or broken: only a name that leaves no doubt makes that our business.
        return _CONFIG_NAME.search(base) is not None and not isinstance(data, str)
    if len(data) > _MOST_KEYS:
        return False
    # DeepSpeed's keys among those of another program's file.
    if sum(_plain(key) in _FOREIGN for key in data) >= _FOREIGN_KEYS:
        return False
    score = _score(data)
    # Half of the keys must be DeepSpeed's, unless several of them are beyond doubt.
    if score < 2 * _ENOUGH and 2 * sum(_known(key) for key in data) < len(_spoken(data)):
        return False
    enough = 0.5 if _STRONG_NAME.search(base) else _ENOUGH
    return score >= enough and not is_template(data)


def may_be_section(name: str, data: Mapping[str, Any]) -> bool:
    """A look at a mapping inside the file of another program and its key: False means certainly no DeepSpeed config.

    Words that are like DeepSpeed's (``ppo_micro_batch_size_per_gpu``) are those of the other program: a section that is
    not called so needs a key that is DeepSpeed's alone.
    """
    return len(data) <= _MOST_KEYS and (
        _SECTION_NAME.search(name) is not None
        or any(
            key in _STRONG or (isinstance(value, dict) and len(_ZERO_KEYS.intersection(value)) >= 2)
            for key, value in data.items()
        )
    )


def _score(data: Mapping[str, Any]) -> float:
    score = 0.0
    shared = 0
    for key, value in data.items():
        plain = _plain(key)
        if plain in _STRONG:
            score += 3
        elif plain in _SHARED:
            shared += 1
            score += _section(plain, value)
        elif isinstance(value, dict) and len(_ZERO_KEYS.intersection(value)) >= 2:
            score += 3  # a misspelt or misplaced ZeRO section
        elif plain in _FOREIGN or key in _FOREIGN:
            score -= 3
        elif _near(plain, _STRONG):
            score += 3
        elif _near(plain, _SHARED):
            shared += 1
    return score + min(shared, 2) * 0.5


def _section(key: str, value: Any) -> float:
    """How much the shape of a shared section says for DeepSpeed."""
    if not isinstance(value, dict):
        return 0.0
    kind = value.get("type")
    if key == "optimizer":
        return 2.0 if str(kind) in _OPTIMIZERS else 1.0 if "type" in value and "params" in value else 0.0
    if key == "scheduler":
        return 2.5 if str(kind) in _SCHEDULERS else 0.5 if "type" in value and "params" in value else 0.0
    if key in ("fp16", "bf16", "bfloat16", "amp"):
        return 2.0 if {"enabled", "loss_scale", "initial_scale_power", "loss_scale_window"} & value.keys() else 0.0
    marks = {
        "activation_checkpointing": {"partition_activations", "cpu_checkpointing", "number_checkpoints"},
        "autotuning": {"enabled", "arg_mappings", "mp_size"},
        "curriculum_learning": {"curriculum_type", "schedule_type"},
        "aio": {"block_size", "queue_depth", "single_submit"},
        "elasticity": {"max_train_batch_size", "micro_batch_sizes"},
        "tensor_parallel": {"autotp_size", "tp_size"},
        "data_types": {"grad_accum_dtype"},
        "compile": {"deepcompile"},
    }
    return 2.0 if marks.get(key, set()) & value.keys() else 0.0


def is_template(data: Any, capitals: bool = True) -> bool:
    """Whether a value is a placeholder (``GB_SIZE``, ``${stage}``, ``{{ lr }}``, ``<LR>``) that a script fills in.

    ``capitals=False`` when words in capitals are ordinary values, as in accelerate's files.
    """
    stack: list[tuple[str, Any]] = [("", data)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack.extend((str(k), v) for k, v in value.items())
        elif isinstance(value, list):
            stack.extend((key, v) for v in value)
        elif isinstance(value, str) and (_MARKED.match(value.strip()) or (capitals and _in_capitals(key, value))):
            return True
    return False


_MARKED = re.compile(
    r"\$\{?[A-Za-z_]\w*\}?$|\$\([A-Za-z_]\w*\)$|<[A-Za-z_][\w -]*>$|__\w+__$|@\w+@$|%\w+%$|.*\{\{.*\}\}"
)
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$")
# Values of these keys are names that people do write in capitals.
_TEXT_KEY = re.compile(
    r"type|project|team|group|name|path|device|entity|workspace|dtype|loss|metric|comment|mode", re.I
)
_NUMBER_KEY = re.compile(r"(^lr|_lr|_size|_steps?|^stage|^enabled|_clipping|_seed|_per_gpu|_num_steps)$", re.I)


def _in_capitals(key: str, value: str) -> bool:
    value = value.strip()
    if key.startswith("_") or _TEXT_KEY.search(key):
        return False
    if _CONSTANT.match(value):
        return True
    return value.isupper() and value.isalpha() and value != "AUTO" and _NUMBER_KEY.search(key) is not None


_ENVIRONMENTS = frozenset(("LOCAL_MACHINE", "AMAZON_SAGEMAKER"))
_DISTRIBUTED = _words(
    "NO MULTI_GPU MULTI_CPU MULTI_NPU MULTI_XPU MULTI_MLU MULTI_SDAA MULTI_MUSA MULTI_HPU MULTI_NEURON DEEPSPEED FSDP "
    "TPU XLA MEGATRON_LM DATA_PARALLEL MODEL_PARALLEL"
)
_ACCELERATE_KEYS = _words(
    "num_processes num_machines machine_rank mixed_precision main_training_function downcast_bf16 use_cpu rdzv_backend "
    "same_network main_process_ip main_process_port gpu_ids enable_cpu_affinity tpu_use_cluster "
    "tpu_use_sudo tpu_env fsdp_config megatron_lm_config dynamo_config fp8_config mpirun_config ipex_config "
    "parallelism_config deepspeed_hostfile deepspeed_multinode_launcher"
)
_PLUGIN_KEYS = _words(
    "zero_stage deepspeed_config_file gradient_accumulation_steps offload_optimizer_device offload_param_device "
    "zero3_init_flag zero3_save_16bit_model gradient_clipping deepspeed_multinode_launcher deepspeed_hostfile"
)
_TOP_LEVEL = re.compile(r"^(\w+)[ \t]*:[ \t]*(.*?)[ \t]*(?:#.*)?$", re.M)
_ACCELERATE_BYTES = re.compile(
    rb"distributed_type|compute_environment|deepspeed_config|num_machines|machine_rank|main_training_function"
    rb"|num_processes|rdzv_backend|downcast_bf16",
)


def may_be_accelerate_config(name: str, raw: bytes) -> bool:
    """A cheap look at name and bytes: False means certainly not, True means parse it."""
    return _base(name).endswith(YAML_SUFFIXES + JSON_SUFFIXES) and _ACCELERATE_BYTES.search(raw) is not None


def is_accelerate_config(name: str, data: Any) -> bool:
    """Whether parsed YAML (or JSON) is a config of ``accelerate launch``."""
    if not _base(name).endswith(YAML_SUFFIXES + JSON_SUFFIXES) or not isinstance(data, dict):
        return False
    score = 0
    if str(data.get("compute_environment")) in _ENVIRONMENTS:
        score += 2
    if "distributed_type" in data:
        known = str(data["distributed_type"]).upper() in _DISTRIBUTED or data["distributed_type"] is False
        score += 2 if known else 1  # YAML reads a bare NO as false
    plugin = data.get("deepspeed_config")
    if isinstance(plugin, dict) and _PLUGIN_KEYS & plugin.keys():
        score += 2
    ours = len(_ACCELERATE_KEYS & data.keys())
    certain = score >= 2 or ours >= 4 or (score and ours >= 3)
    return bool(certain) and score + ours >= 3 and not is_template(data, capitals=False)


def looks_like_accelerate_config(name: str, text: str) -> bool:
    """Whether the top-level lines of YAML that cannot be parsed are those of a config of ``accelerate launch``."""
    lines = {key: value.strip("'\"") for key, value in _TOP_LEVEL.findall(text)}
    return is_accelerate_config(name, lines)


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _json_like(base: str) -> bool:
    """A suffix of the JSON family, or none at all with a name that says DeepSpeed."""
    lower = base.lower()
    return lower.endswith(JSON_SUFFIXES) or ("." not in base and _STRONG_NAME.search(base) is not None)


def _plain(key: str) -> str:
    return key.strip().lower().replace("-", "_")


def _spoken(data: Mapping[str, Any]) -> list[str]:
    """The keys that are no comments."""
    return [key for key in data if not key.startswith(("_", "$", "//", "#"))]


def _known(key: str) -> bool:
    plain = _plain(key)
    return plain in _STRONG or plain in _SHARED or _near(plain, _STRONG) or _near(plain, _SHARED)


def _near(key: str, known: frozenset[str]) -> bool:
    """A misspelling: ``zero_optimisation``, ``train_micro_batch_size``, ``gradient_acumulation_steps``."""
    if len(key) < 8:
        return False
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=key, autojunk=False)
    for candidate in known:
        matcher.set_seq1(candidate)
        if matcher.real_quick_ratio() >= 0.84 and matcher.quick_ratio() >= 0.84 and matcher.ratio() >= 0.84:
            return True
    return False
