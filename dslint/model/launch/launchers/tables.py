"""The options of the launchers, as their parsers declare them.

torchrun: torch 2.13 ``torch.distributed.run.get_args_parser`` and ``--use_env`` of ``torch.distributed.launch``;
deepspeed: 0.19.8 ``launcher.runner.parse_args`` and the elastic options of older releases; accelerate: 1.15
``launch_command_parser``; srun: Slurm 23.11; mpirun: Open MPI and MPICH.
"""

from __future__ import annotations

from dslint.model.launch.launchers.base import options

TORCHRUN = options(
    "--nnodes --nproc_per_node --rdzv_backend --rdzv_endpoint --rdzv_id --rdzv_conf --max_restarts --monitor_interval"
    " --start_method --event_log_handler --role --log_dir -r --redirects -t --tee --local_ranks_filter"
    " --duplicate_stdout_filters --duplicate_stderr_filters --node_rank --master_addr --master_port --local_addr"
    " --logs_specs --numa_binding --signals_to_handle --shutdown_timeout",
    "-h --help --standalone -m --module --no_python --run_path --use_env --virtual_local_rank",
)
DEEPSPEED = options(
    "-H --hostfile -i --include -e --exclude --num_nodes --num_gpus --num_accelerators --master_port --master_addr"
    " --node_rank --launcher --launcher_args --enable_each_rank_log --autotuning --bind_core_list --ssh_port"
    " --venv_script --log_level --min_elastic_nodes --max_elastic_nodes",
    "-h --help --module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid"
    " --bind_cores_to_rank -q --quiet --elastic_training",
)
ACCELERATE = options(
    "--config_file --mixed_precision --num_processes --num_machines --num_cpu_threads_per_process --dynamo_backend"
    " --dynamo_mode --gpu_ids --machine_rank --main_process_ip --main_process_port -t --tee --log_dir --role"
    " --rdzv_backend --rdzv_conf --max_restarts --monitor_interval --tpu_cluster_name --tpu_zone --vm --env"
    " --main_training_function --deepspeed_config_file --zero_stage --offload_optimizer_device --offload_param_device"
    " --offload_optimizer_nvme_path --offload_param_nvme_path --gradient_accumulation_steps --gradient_clipping"
    " --zero3_init_flag --zero3_save_16bit_model --deepspeed_hostfile --deepspeed_exclusion_filter"
    " --deepspeed_inclusion_filter --deepspeed_multinode_launcher --deepspeed_moe_layer_cls_names --fsdp_version"
    " --fsdp_offload_params --fsdp_min_num_params --fsdp_sharding_strategy --fsdp_reshard_after_forward"
    " --fsdp_auto_wrap_policy --fsdp_transformer_layer_cls_to_wrap --fsdp_backward_prefetch --fsdp_state_dict_type"
    " --fsdp_forward_prefetch --fsdp_use_orig_params --fsdp_cpu_ram_efficient_loading --fsdp_sync_module_states"
    " --fsdp_activation_checkpointing --fp8_backend --fp8_margin --fp8_interval --fp8_format --fp8_amax_history_len"
    " --fp8_amax_compute_algo --fp8_override_linear_precision --fp8_opt_level --mpirun_hostfile --mpirun_ccl",
    "-h --help -q --quiet --cpu --multi_gpu --tpu --use_xpu --ipex --enable_cpu_affinity --dynamo_use_fullgraph"
    " --dynamo_use_dynamic --dynamo_use_regional_compilation --use_deepspeed --use_fsdp --use_parallelism_config"
    " --use_megatron_lm --same_network -m --module --no_python --tpu_cluster --no_tpu_cluster --tpu_use_sudo"
    " --downcast_bf16 --fp8_use_autocast_during_eval --fp8_enable_fsdp_float8_all_gather --fp8_pad_inner_dim --debug",
)
SRUN = options(
    "-A --account -a -b --begin -c --cpus_per_task -C --constraint --chdir -D -d --dependency -e --error --exclude -x"
    " --export --gpus -G --gpus_per_node --gpus_per_task --gpus_per_socket --gres --hint -i --input -J --job_name"
    " --jobid -m --distribution --mem --mem_per_cpu --mem_per_gpu --mpi -n --ntasks -N --nodes --ntasks_per_node"
    " --ntasks_per_gpu --ntasks_per_core --ntasks_per_socket --tasks_per_node -o --output -p --partition -q --qos"
    " --reservation -t --time --time_min -w --nodelist -W --wait --container_image --container_mounts"
    " --container_name --container_workdir --container_env --cpu_bind --gpu_bind --mem_bind --kill_on_bad_exit -K"
    " --network --nice --open_mode --signal --task_prolog --task_epilog --threads -T --uid --gid --wckey --comment"
    " --cpu_freq --ntasks_per_tres --quotatype --async_output",
    "-E --preserve_env -k --no_kill -l --label -O --overcommit -Q --quiet -s --oversubscribe -u --unbuffered -v"
    " --verbose -X --disable_status -Z --no_allocate --pty --overlap --exact --exclusive -I --immediate --async"
    " --container_mount_home --no_container_mount_home --container_writable --container_remap_root --propagate",
)
MPIRUN = options(
    "-np -n -c --n --np -npernode --npernode -N -ppn -H --host -host -hosts --hostfile -hostfile -f -machinefile"
    " --machinefile -x -bind_to --bind_to -map_by --map_by --rank_by -rank_by -wdir --wdir --prefix -genvlist",
    "--allow_run_as_root -allow_run_as_root --oversubscribe -oversubscribe -v --verbose -q"
    " --tag_output --report_bindings",
    abbreviates=False,
)
# Options with two values.
MPI_PAIRS = frozenset({"-mca", "--mca", "-genv", "-env"})
NONE = options("")
