"""Options by which a launcher decides how many processes run where: behind the script nobody reads them."""

from __future__ import annotations

from dslint.model.launch.command import canonical

_TORCHRUN = (
    "--nproc_per_node --nnodes --node_rank --master_addr --master_port --rdzv_backend --rdzv_endpoint --rdzv_id"
    " --rdzv_conf --standalone --max_restarts"
)
_DEEPSPEED = (
    "--num_gpus --num_nodes --include --exclude --hostfile --master_addr --master_port --node_rank --no_ssh"
    " --no_local_rank --force_multi --launcher_args"
)
_ACCELERATE = (
    "--num_processes --num_machines --machine_rank --main_process_ip --main_process_port --multi_gpu --use_deepspeed"
    " --use_fsdp --gpu_ids --deepspeed_config_file --deepspeed_hostfile --deepspeed_multinode_launcher"
    " --zero3_init_flag --zero3_save_16bit_model --same_network --num_cpu_threads_per_process --dynamo_backend"
)
_OWN = {
    "torchrun": frozenset(_TORCHRUN.split()),
    "deepspeed": frozenset(_DEEPSPEED.split()),
    "accelerate": frozenset(_ACCELERATE.split()),
}
# What another launcher calls the same thing.
_SAME = (
    {"torchrun": "--nproc_per_node", "deepspeed": "--num_gpus", "accelerate": "--num_processes"},
    {"torchrun": "--nnodes", "deepspeed": "--num_nodes", "accelerate": "--num_machines"},
    {"torchrun": "--node_rank", "deepspeed": "--node_rank", "accelerate": "--machine_rank"},
    {"torchrun": "--master_addr", "deepspeed": "--master_addr", "accelerate": "--main_process_ip"},
    {"torchrun": "--master_port", "deepspeed": "--master_port", "accelerate": "--main_process_port"},
)


def own_option(launcher: str, typed: str) -> str:
    """The option of the launcher that a word behind the script spells; empty for any other word."""
    name = canonical(typed.partition("=")[0])
    return name if name in _OWN.get(launcher, ()) else ""


def counterpart(launcher: str, typed: str) -> str:
    """What this launcher calls the option of another one; empty when there is no such thing."""
    name = canonical(typed)
    for row in _SAME:
        if name in row.values() and row.get(launcher, name) != name:
            return row[launcher]
    return ""
