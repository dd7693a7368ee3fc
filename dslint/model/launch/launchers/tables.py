"""The options of the launchers, as their parsers declare them.

torchrun, deepspeed, accelerate launch: ``releases.py``; srun: Slurm 23.11; mpirun: Open MPI and MPICH; horovodrun:
Horovod 0.28 ``runner/launch.py``; colossalai: ColossalAI 0.4 ``cli/launcher``; composer: MosaicML Composer 0.32
``cli/launcher.py``.
"""

from __future__ import annotations

from functools import cache

from dslint.model.launch.command import canonical
from dslint.model.launch.launchers.base import Options, options
from dslint.model.launch.launchers.releases import launcher_options


@cache
def released(launcher: str) -> Options:
    """The options that any release of torchrun, deepspeed or accelerate launch has."""
    rows = launcher_options(launcher, program="torch.distributed.launch")
    values = {name for row in rows if row.takes_value for name in (row.name, *row.spellings)}
    switches = {name for row in rows if not row.takes_value for name in (row.name, *row.spellings)}
    # ``accelerate launch`` has abbreviated nothing since 0.18.
    names = (frozenset(map(canonical, values)), frozenset(map(canonical, switches)))
    return Options(*names, abbreviates=launcher != "accelerate")


SRUN = options(
    "-A --account -a -b --begin -c --cpus_per_task -C --constraint --chdir -D -d --dependency -e --error --exclude -x"
    " --export --gpus -G --gpus_per_node --gpus_per_task --gpus_per_socket --gres --hint -i --input -J --job_name"
    " --jobid -m --distribution --mem --mem_per_cpu --mem_per_gpu --mpi -n --ntasks -N --nodes --ntasks_per_node"
    " --ntasks_per_gpu --ntasks_per_core --ntasks_per_socket --tasks_per_node -o --output -p --partition -q --qos"
    " --reservation -t --time --time_min -w --nodelist -W --wait --container_image --container_mounts"
    " --container_name --container_workdir --container_env --cpu_bind --gpu_bind --mem_bind --kill_on_bad_exit -K"
    " --network --nice --open_mode --signal --task_prolog --task_epilog --threads -T --uid --gid --wckey --comment"
    " --cpu_freq --ntasks_per_tres --quotatype --async_output --het_group --pack_group --tres_per_task",
    "-E --preserve_env -k --no_kill -l --label -O --overcommit -Q --quiet -s --oversubscribe -u --unbuffered -v"
    " --verbose -X --disable_status -Z --no_allocate --pty --overlap --exact --exclusive -I --immediate --async"
    " --container_mount_home --no_container_mount_home --container_writable --container_remap_root --propagate"
    " --multi_prog",
)
MPIRUN = options(
    "-np -n -c --n --np -npernode --npernode -N -ppn --ppn -perhost --perhost -H --host -host -hosts --hosts --hostfile"
    " -hostfile -f -machinefile --machinefile -x -bind_to --bind_to -map_by --map_by --rank_by -rank_by -wdir --wdir"
    " -wd --wd --prefix -genvlist -envlist --output_filename --timeout --report_uri -iface -launcher --launcher",
    "--allow_run_as_root -allow_run_as_root --oversubscribe -oversubscribe -v --verbose -q --nooversubscribe"
    " --tag_output -tag_output --report_bindings -report_bindings --display_map -genvall -l -prepend_rank",
    abbreviates=False,
)
# Options with two values.
MPI_PAIRS = frozenset({"-mca", "--mca", "-genv", "-env"})
HOROVODRUN = options(
    "-np --num_proc -H --hosts -hostfile --hostfile --min_np --max_np --slots_per_host -p --ssh_port -i"
    " --ssh_identity_file --network_interfaces --output_filename --start_timeout --config_file --mpi_args"
    " --host_discovery_script --reset_limit --log_level --fusion_threshold_mb --cycle_time_ms --cache_capacity",
    "-h --help -v --version -cb --check_build --disable_cache --gloo --mpi --jsrun --verbose --tcp --autotune"
    " --no_autotune --prefix_output_with_timestamp",
)
COLOSSALAI = options(
    "-H -host --host --hostfile --include --exclude --num_nodes --nproc_per_node --master_port --master_addr"
    " --extra_launch_args --ssh_port -m",
    "--help",
    abbreviates=False,
)
COMPOSER = options(
    "-n --nproc --stdout --stderr --world_size --base_rank --node_rank --master_addr --master_port",
    "-h --help --version -v --verbose -m --module_mode -c --command_mode",
)
NONE = options("")
