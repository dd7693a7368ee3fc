"""The names of calls that every rank must make, and of the guards that keep ranks away from them."""

from __future__ import annotations

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
ACCELERATE_FUNCTIONS = frozenset(
    {
        *("wait_for_everyone", "gather", "gather_object", "broadcast", "broadcast_object_list", "reduce"),
        *("pad_across_processes", "synchronize_rng_states"),
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
}
BARRIERS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone", "synchronize"})
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
        *("main_process_only", "only_main_process", "local_main_process_only"),
    }
)
# Of accelerate; they say themselves which rank they let in.
OTHER_DECORATORS = frozenset({"on_process", "on_local_process", "on_last_process"})
METHODS = frozenset({*ENGINE, *ACCELERATOR, *TRAINER})
COLLECTIVE_NAMES = frozenset({*GROUP_POSITION, *MMENGINE, *ACCELERATE_FUNCTIONS, *METHODS})
COLLECTIVE_NAMES |= {"initialize", "GatheredParameters", "DistributedDataParallel"}
