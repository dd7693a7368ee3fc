"""The names of calls that every rank must make, and of the guards that keep ranks away from them.

Those of torch, DeepSpeed, accelerate, transformers and mmengine; other frameworks stand in ``frameworks.py``. Judged
from torch 2.13, DeepSpeed 0.19.8, accelerate 1.15, transformers 5.23 and mmengine 0.10.7, mostly on two gloo ranks.
"""

from __future__ import annotations

from dslint.model.script.collective.frameworks import FRAMEWORK_FUNCTIONS, FRAMEWORK_METHODS

# Functions of torch.distributed and its look-alikes: the position of their ``group`` argument.
GROUP_POSITION = {
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
    "new_group": 99,
}
MMENGINE = frozenset(
    {
        *("barrier", "all_reduce", "all_gather", "gather", "broadcast", "sync_random_seed", "broadcast_object_list"),
        *("all_gather_object", "gather_object", "collect_results", "collect_results_cpu", "collect_results_gpu"),
        *("all_reduce_dict", "all_reduce_params"),
    }
)
ACCELERATE_ROOTS = (
    *("accelerate.utils", "accelerate.utils.operations", "accelerate.utils.other", "accelerate.utils.random"),
)
ACCELERATE_FUNCTIONS = frozenset(
    {
        *("wait_for_everyone", "gather", "gather_object", "broadcast", "broadcast_object_list", "reduce"),
        *("pad_across_processes", "synchronize_rng_states", "synchronize_rng_state"),
    }
)
ENGINE: dict[str, bool] = {
    "save_checkpoint": False,
    "step": False,
    "backward": False,
    "train_batch": False,
    "eval_batch": False,
    "allreduce_gradients": False,
    "save_16bit_model": True,
    "save_fp16_model": True,
    "_zero3_consolidated_16bit_state_dict": True,
    "generate": True,
    "chat": True,
    "forward": True,
}
ENGINE_MODULE: dict[str, bool] = {"generate": True, "chat": True, "forward": True}
# What only a DeepSpeed engine does, and not the other models that ``accelerator.prepare`` may return.
PREPARED = frozenset({"save_checkpoint", "save_16bit_model", "generate"})
CHECKPOINT_ROOTS = ("torch.distributed.checkpoint", "torch.distributed.checkpoint.state_dict_saver")
CHECKPOINT_FUNCTIONS = frozenset({"save", "async_save", "save_state_dict", "load"})
ACCELERATOR: dict[str, bool] = {
    "wait_for_everyone": False,
    "gather": False,
    "gather_for_metrics": False,
    "reduce": False,
    "pad_across_processes": False,
    "check_trigger": False,
    "prepare": False,
    "backward": False,
    "main_process_first": False,
    "local_main_process_first": False,
    "save_model": True,
    "get_state_dict": True,
    "save_state": True,
}
TRAINER: dict[str, bool] = {
    "train": False,
    "evaluate": False,
    "predict": False,
    "save_model": True,
    "push_to_hub": True,
    # What subclasses call in methods of their own; ``training_step`` ends in a backward, ``prediction_step`` in none.
    "evaluation_loop": False,
    "prediction_loop": False,
    "training_step": False,
    "_nested_gather": False,
    "_save_checkpoint": True,
    "prediction_step": True,
}
TRAINING_ARGUMENTS: dict[str, bool] = {"main_process_first": False}
# The members of FSDP that take a model and unshard it, or exchange the state of its optimizer. ``state_dict_type``,
# ``shard_full_optim_state_dict`` and ``optim_state_dict_to_load`` talk to nobody.
FSDP_CLASS = "torch.distributed.fsdp.FullyShardedDataParallel"
FSDP_STATIC = frozenset(
    {
        *("summon_full_params", "optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict"),
        "scatter_full_optim_state_dict",
    }
)
FSDP_METHODS = frozenset(
    {*("forward", "generate", "state_dict", "load_state_dict", "clip_grad_norm_", "summon_full_params")}
)
SHARDED_METHODS = FSDP_METHODS | {"full_tensor"}
# Of ``torch.distributed.checkpoint.state_dict``, with ``full_state_dict=True``: FSDP2 gathers what they return and
# scatters what they are given. Without that option nothing moves, nor does it for a model that is not sharded.
STATE_DICTS = "torch.distributed.checkpoint.state_dict"
STATE_DICT_FUNCTIONS = frozenset(
    {
        *("get_state_dict", "get_model_state_dict", "get_optimizer_state_dict"),
        *("set_state_dict", "set_model_state_dict", "set_optimizer_state_dict"),
    }
)
# One barrier for each rank: the main process passes it after the block, the others before.
FIRST = frozenset(
    {
        *("main_process_first", "local_main_process_first", "torch_distributed_zero_first", "priority_execution"),
        "run_local_rank_zero_first",
    }
)
BARRIERS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone", "synchronize", "block_all"}) | FIRST
DISTRIBUTED_ROOTS = (
    "torch.distributed",
    "deepspeed.comm",
    "deepspeed.comm.comm",
    "torch.distributed.distributed_c10d",
)
DEFAULT_GROUPS = frozenset({"None", "WORLD"})
MAIN_DECORATORS = frozenset(
    {
        *("rank_zero_only", "rank0_only", "master_only", "on_main_process", "on_local_main_process"),
        *("main_process_only", "only_main_process", "local_main_process_only", "on_master_only"),
    }
)
# Of accelerate; they say themselves which rank they let in.
OTHER_DECORATORS = frozenset({"on_process", "on_local_process", "on_last_process"})
METHODS = frozenset({*ENGINE, *ACCELERATOR, *TRAINER, *FRAMEWORK_METHODS})
# Words that many things have; they count only for what a framework made, or what is called as if.
COMMON = frozenset(
    {*("save", "load", "log", "log_dict", "fit", "eval", "val", "test", "validate", "predict", "boost", "prepare")}
)
COLLECTIVE_NAMES = frozenset({*GROUP_POSITION, *MMENGINE, *ACCELERATE_FUNCTIONS, *(METHODS - COMMON), "predict"})
COLLECTIVE_NAMES |= FRAMEWORK_FUNCTIONS | FSDP_STATIC | STATE_DICT_FUNCTIONS
COLLECTIVE_NAMES |= {"initialize", "GatheredParameters", "DistributedDataParallel", "full_tensor"}

# Byte patterns without all of which no collective stands behind a rank guard: a parse costs a hundred times more.
GUARDED_COLLECTIVE = (
    # Cheap words first: the precise patterns below run on what is left.
    r"rank|is_main|main_process|master|should_save|process_zero|global_zero|process_index|RANK|PROCID|last_process",
    # A call that waits for all ranks; every engine comes from ``initialize`` or has a name that says so.
    r"(?:barrier|wait_for_everyone|synchronize\w*|all_\w+|reduce\w*|broadcast\w*|gather\w*|scatter\w*|initialize"
    r"|_base|save_model|save_state|push_to_hub|GatheredParameters|evaluate|predict|get_state_dict|sync_random_seed"
    r"|new_group|check_trigger|save_checkpoint|chat|DistributedDataParallel|DDP"
    r"|collect_results\w*|pad_across_processes|process_first|zero_first|evaluation_loop|prediction_\w+|training_step"
    r"|_nested_gather|_save_checkpoint|save_ckpt|optimizer_step|block_all|priority_execution|manual_backward"
    r"|full_tensor|[gs]et_\w*state_dict|optim_state_dict|cpu_state_dict|full_params|process_hf_dataset"
    r"|load_(?:checkpoint|from_full_\w+)|initialize_model_parallel|safe_get_full_\w+"
    r"|distributed_\w+)\(|Fabric\b|Lightning|Booster\b|Runner\b|\.Trainer\b|sync_dist"
    r"|FullySharded|fully_shard|\.prepare\(|_engine\b|DeepSpeedEngine|trainer\w*\.train\("
    r"|(?:dcp|_cp|checkpoint)\.(?:async_)?(?:save|load)\w*\(",
    # A test or decorator that asks for the rank.
    r"\b(?:if|elif|while|and|or|not|return|match)\b[^\n]*(?i:rank)|(?i:rank|process_index|procid)\W*[=!<>]=?\s*[\"'(\[]?\d"
    r"|rank\S* (?:not )?in\b|@[\w.]*(?:rank|master|main)|is_main|is_master|is_local_ma|should_save|process_zero"
    r"|global_zero|process_index|@[\w.]*on_\w*process"
    # The rank under another name: ``r, n = dist.get_rank(), dist.get_world_size()``.
    r"|\n[ \t]*(?!\w*rank)\w+(?:, ?\w+)* *= *[^\n=]*(?:get_rank\(|[\"'][A-Z_]*RANK)",
    r"\.distributed|from torch import|deepspeed|accelerat|transformers|trl|mmengine"
    r"|lightning|openrlhf|colossalai|composer|torchtune|xtuner|megatron|trainer\.push_to_hub",
)
# Of these, what may stand in a file of the project that a script imports: the call that waits, the name of a library.
ELSEWHERE = frozenset({GUARDED_COLLECTIVE[1], GUARDED_COLLECTIVE[3]})
