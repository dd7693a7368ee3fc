"""The words by which scripts ask for the rank of a process: what the analysis takes for it, and the first looks too."""

from __future__ import annotations

# The rank of the process in the job or node. Ranks within a subgroup (``tp_rank``) and LoRA ranks are others.
RANK_NAMES = frozenset(
    {
        *("rank", "local_rank", "global_rank", "process_index", "local_process_index", "world_rank", "proc_rank"),
        *("ddp_rank", "ddp_local_rank", "dist_rank", "my_rank", "cur_rank", "current_rank", "this_rank", "rank_id"),
        *("process_rank", "local_rank_id", "global_rank_id"),
    }
)
RANK_CALLS = frozenset({"get_rank", "get_local_rank", "get_global_rank", "get_process_index"})
RANK_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK"})
# Keys of settings that hold the rank; a bare "rank" may be that of a LoRA.
RANK_KEYS = frozenset({"rank", "local_rank", "global_rank"})
WORLD_NAMES = frozenset({"world_size", "num_processes", "n_processes", "num_replicas", "n_gpu", "num_gpus", "ngpus"})
WORLD_CALLS = frozenset({"get_world_size", "get_num_processes"})
WORLD_TEXTS = frozenset({"WORLD_SIZE"})
# Without leading underscores.
MAIN_NAMES = frozenset(
    {
        *("is_main_process", "is_local_main_process", "is_world_process_zero", "is_local_process_zero"),
        *("is_global_zero", "is_rank_0", "is_rank0", "is_rank_zero", "is_master", "is_master_process", "is_main_rank"),
        *("is_local_master", "is_local_rank_0", "is_local_rank0", "is_local_rank_zero", "is_local_main"),
        *("is_world_main_process", "is_first_rank", "is_node_main_process", "is_node_master", "is_main"),
        *("is_rank0_process", "is_local_dist_rank_0", "is_torch_dist_rank_zero", "master_process"),
    }
)
# Everything that a test by rank says somewhere: as a name, and as a text (of a variable, a key, an attribute).
ASKING_NAMES = RANK_NAMES | RANK_CALLS | MAIN_NAMES | {"should_save"}
ASKING_TEXTS = RANK_NAMES | RANK_VARIABLES | RANK_KEYS


def asks(name: str) -> bool:
    """A variable, attribute or function of this name may be the rank, or a test of it."""
    return name.lstrip("_").lower() in ASKING_NAMES


def counts(name: str) -> bool:
    """A variable, attribute or function of this name may be the number of processes."""
    return name.lstrip("_").lower() in WORLD_NAMES or name in WORLD_CALLS
