"""How each launcher is read: which words are its own, how many processes it starts, where they meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs
from dslint.model.launch.launchers.environment import reads, sets
from dslint.model.launch.meeting import devices, meeting
from dslint.model.launch.rendezvous import rendezvous
from dslint.model.plan.runplan import build_plans
from dslint.model.workspace import Workspace


def one(script: str) -> LaunchCommand:
    found = read_launch_docs(SourceFile("run.sh", script), "shell")[0].commands
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("script", "launcher", "expected"),
    [
        ("CUDA_VISIBLE_DEVICES=1,3 torchrun --nproc_per_node gpu t.py", "torchrun", (1, 2, 2)),
        ("torchrun --nproc_per_node gpu t.py", "torchrun", (1, "unknown", "unknown")),
        ("CUDA_VISIBLE_DEVICES=1,3 torchrun --nproc_per_node auto t.py", "torchrun", (1, "unknown", "unknown")),
        ("deepspeed -H/job/hostfile -ilocalhost:0,1 t.py", "deepspeed", (1, 2, 2)),
        # Releases differ in what they make of a host that is named twice.
        ("deepspeed -i a:0@a:1 t.py", "deepspeed", ("unknown", "unknown", "unknown")),
        ("deepspeed.pt --num_gpus 2 t.py", "deepspeed", (1, 2, 2)),
        ("accelerate-launch --num_processes 4 --num_machines 2 t.py", "accelerate", (2, 2, 4)),
        (
            "python -m accelerate.commands.accelerate_cli launch --num_processes 4 t.py",
            "accelerate",
            (1, 4, 4),
        ),
        # With --cpu accelerate starts one process, unless mpirun does it.
        ("accelerate launch --cpu --num_processes 4 t.py", "accelerate", (1, 1, 1)),
        ("accelerate launch --cpu --num_processes 4 --mpirun_hostfile h t.py", "accelerate", ("unknown", "unknown", 4)),
        ("NNODES=2 swift sft --model x", "swift", (2, 1, 2)),
        ("NPROC_PER_NODE=2 swift rlhf --model x", "swift", (1, 2, 2)),
        ("swift sft --model x", "swift", ("absent", "absent", "absent")),
        ("swift sft conf.yaml", "swift", ("unknown", "unknown", "unknown")),
        ("NPROC_PER_NODE=8 megatron sft --model x", "swift", (1, 8, 8)),
        ("CUDA_VISIBLE_DEVICES=0 llamafactory-cli train c.yaml", "llamafactory", (1, 1, 1)),
        ("CUDA_VISIBLE_DEVICES=0 NPROC_PER_NODE=4 llamafactory-cli train c.yaml", "llamafactory", (1, 1, 1)),
        ("CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train c.yaml", "llamafactory", (1, 2, 2)),
        ("FORCE_TORCHRUN=1 CUDA_VISIBLE_DEVICES=0 llamafactory-cli train c.yaml", "llamafactory", (1, 1, 1)),
        ("FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 lmf train c.yaml", "llamafactory", (2, 8, 16)),
        ("FORCE_TORCHRUN=1 llamafactory-cli train c.yaml", "llamafactory", (1, "unknown", "unknown")),
        ("llamafactory-cli train c.yaml", "llamafactory", ("absent", "absent", "absent")),
        (
            "USE_RAY=1 CUDA_VISIBLE_DEVICES=0 llamafactory-cli train c.yaml",
            "llamafactory",
            ("absent", "absent", "unknown"),
        ),
        ("axolotl train c.yml", "axolotl", ("unknown", "unknown", "unknown")),
        ("axolotl train c.yml --num-processes 8", "axolotl", (1, 8, 8)),
        ("axolotl train c.yml -- --num_processes 8 --num_machines 2", "axolotl", (2, 4, 8)),
        ("axolotl train c.yml --launcher torchrun -- --nproc_per_node 4 --nnodes 2", "axolotl", (2, 4, 8)),
        ("axolotl train c.yml --launcher python", "axolotl", ("absent", "absent", "absent")),
        ("axolotl train c.yml --launcher $L", "axolotl", ("unknown", "unknown", "unknown")),
        ("colossalai run --nproc_per_node 4 t.py", "colossalai", (1, 4, 4)),
        ("colossalai run --nproc_per_node 4 --host a,b t.py", "colossalai", (2, 4, 8)),
        ("colossalai run --nproc_per_node 4 --hostfile h t.py", "colossalai", ("unknown", 4, "unknown")),
        ("colossalai run t.py", "colossalai", (1, "absent", "absent")),
        ("composer -n 4 t.py", "composer", (1, 4, 4)),
        ("composer -n 4 --world_size 8 --node_rank 1 t.py", "composer", (2, 4, 8)),
        ("CUDA_VISIBLE_DEVICES=0,1 composer t.py", "composer", (1, 2, 2)),
        ("composer t.py", "composer", ("unknown", "unknown", "unknown")),
        ("python main.py fit --trainer.devices 8 --trainer.num_nodes 2", "lightning", (2, 8, 16)),
        ("python main.py fit --trainer.devices='[0,3]' -c x.yaml", "lightning", (1, 2, 2)),
        ("python main.py fit --trainer.devices auto", "lightning", (1, "unknown", "unknown")),
        ("srun -N 2 --ntasks-per-node 4 python main.py fit --trainer.devices 4", "srun", (2, 4, 8)),
        ("horovodrun -np 8 -H a:4,b:4 python t.py", "horovodrun", (2, 4, 8)),
        ("horovodrun -np 4 python t.py", "horovodrun", ("unknown", "unknown", 4)),
        ("mpirun -np 8 --map-by ppr:4:node python t.py", "mpirun", (2, 4, 8)),
        ("mpirun -H a:4,b:4 python t.py", "mpirun", (2, 4, 8)),
        ("mpiexec -n 8 -ppn 4 python t.py", "mpirun", (2, 4, 8)),
        ("ray job submit --address x -- torchrun --nproc_per_node 2 t.py", "torchrun", (1, 2, 2)),
        ("docker compose run -e A=1 train torchrun --nproc_per_node 2 t.py", "torchrun", (1, 2, 2)),
        ("nsys profile -y 10 -t cuda,nvtx -o out torchrun --nproc_per_node 2 t.py", "torchrun", (1, 2, 2)),
        ("uvx --from torch torchrun --nproc_per_node 2 t.py", "torchrun", (1, 2, 2)),
        ("flock /tmp/lock torchrun --nproc_per_node 2 t.py", "torchrun", (1, 2, 2)),
        ("gdb -ex run --args python t.py", "python", ("absent", "absent", "absent")),
    ],
)
def test_processes_are_counted(script: str, launcher: str, expected: tuple[object, ...]) -> None:
    command = one(script)
    assert command.launcher == launcher
    assert (shown(command.nodes), shown(command.processes_per_node), shown(command.world_size)) == expected


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("torchrun t.py -- --x", ["--x"]),
        ("torchrun t.py -- -- --x", ["--", "--x"]),
        ("torchrun -- t.py -- --x", ["--", "--x"]),
        ("accelerate launch t.py -- --x", ["--x"]),
        ("deepspeed t.py -- -- --x", ["--x"]),
        ("torchrun t.py 1 -- --x", ["1", "--", "--x"]),
        ("python t.py -- --x", ["--", "--x"]),
    ],
)
def test_dashes_that_do_not_reach_the_script(script: str, arguments: list[str]) -> None:
    assert [w.text for w in one(script).script_args] == arguments


@pytest.mark.parametrize("script", ["composer install", "composer require a/b", "swift build", "colossalai check"])
def test_other_programs_of_the_same_name_start_nothing(script: str) -> None:
    assert read_launch_docs(SourceFile("run.sh", script), "shell")[0].commands == ()


def test_values_that_are_glued_to_short_options() -> None:
    command = one("torchrun -r0:1,1:2 -t3 --nproc_per_node=2 -m a.b -x")
    assert [(f.name, f.value and f.value.text) for f in command.launcher_flags] == [
        ("-r", "0:1,1:2"),
        ("-t", "3"),
        ("--nproc_per_node", "2"),
        ("-m", None),
    ]
    assert command.script is not None
    assert (command.script.text, command.is_module) == ("a.b", True)


def test_the_launcher_of_axolotl_gets_what_stands_behind_the_dashes() -> None:
    command = one("axolotl train c.yml --launcher torchrun -- --nproc_per_node 4")
    assert [w.text for w in command.script_args] == ["c.yml", "--launcher", "torchrun"]
    assert command.launcher_flag("--nproc_per_node") is not None


@pytest.mark.parametrize(
    ("script", "name", "value"),
    [
        ("mpirun -np 2 -x A=1 -x B python t.py", "A", "1"),
        ("mpiexec -n 2 -genv A 1 python t.py", "A", "1"),
        ("mpiexec -n 2 -genv A=1 python t.py", "A", "1"),
        ("srun --export=ALL,A=1 python t.py", "A", "1"),
        ("export A=1\nsrun --export=ALL python t.py", "A", "1"),
        ("export A=1\nsrun --export=NONE python t.py", "A", "absent"),
        ("export A=1\nsrun --export=B=2 python t.py", "A", "absent"),
        ("mpirun -x A=$B python t.py", "A", "unknown"),
    ],
)
def test_the_environment_that_a_launcher_hands_over(script: str, name: str, value: str) -> None:
    fact = one(script).variable(name)
    assert (fact.get() if fact.is_known else fact.state) == value


def test_what_launchers_read_and_set() -> None:
    command = one("torchrun t.py")
    assert reads(command, "PET_NNODES")
    assert not reads(command, "MASTER_ADDR")
    assert sets(command, "MASTER_ADDR")
    assert reads(one("NNODES=2 swift sft"), "MASTER_ADDR")
    assert reads(one("srun torchrun t.py"), "SLURM_NTASKS")
    assert not sets(one("python t.py"), "RANK")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("torchrun t.py", ("absent", "absent", "absent", "absent")),
        ("torchrun --node_rank 1 --master_addr h --master_port 1 t.py", ("absent", "h", "1", "1")),
        ("torchrun --rdzv_backend c10d --rdzv_endpoint h:29400 t.py", ("c10d", "h", "29400", "absent")),
        ("torchrun --rdzv_endpoint h t.py", ("absent", "h", "absent", "absent")),
        ("torchrun --rdzv_endpoint '[::1]:29400' t.py", ("absent", "::1", "29400", "absent")),
        ("torchrun --rdzv_endpoint $H:29400 t.py", ("absent", "unknown", "29400", "absent")),
        ("torchrun --standalone --master_port 1 t.py", ("c10d", "absent", "absent", "absent")),
        ("PET_NODE_RANK=1 PET_MASTER_ADDR=h torchrun t.py", ("absent", "h", "absent", "1")),
        ("PET_NODE_RANK=1 torchrun --node_rank 2 t.py", ("absent", "absent", "absent", "2")),
        ("torchrun $ARGS t.py", ("unknown", "unknown", "unknown", "unknown")),
        ("deepspeed --master_port 1 t.py", ("absent", "absent", "1", "absent")),
        ("deepspeed --no_ssh --node_rank 1 --master_addr h -H f t.py", ("absent", "h", "absent", "1")),
        ("accelerate launch --machine_rank 1 --main_process_ip h t.py", ("absent", "h", "absent", "1")),
        ("ADDR=h PORT=1 NODE_RANK=1 NPROC_PER_NODE=2 xtuner train c.py", ("absent", "h", "1", "1")),
        ("MASTER_ADDR=h MASTER_PORT=1 srun -n 2 python t.py", ("absent", "h", "1", "absent")),
        ("MASTER_PORT=2 composer --master_port 1 t.py", ("absent", "absent", "1", "absent")),
    ],
)
def test_where_processes_meet(script: str, expected: tuple[str, ...]) -> None:
    found = meeting(one(script))
    facts = (found.backend, found.address, found.port, found.node_rank)
    assert tuple(f.get() if f.is_known else f.state for f in facts) == expected


def test_the_accelerate_file_says_who_starts_the_processes() -> None:
    local = "compute_environment: LOCAL_MACHINE\n"
    two = "num_machines: 2\nnum_processes: 8\n"
    for flags, text, expected in [
        ("", local + "distributed_type: MULTI_GPU\n" + two, (2, 4, 8)),
        ("--num_processes 4", local + "distributed_type: MULTI_GPU\n" + two, (2, 2, 4)),
        ("--num_processes 5", local + "distributed_type: MULTI_GPU\n" + two, (2, 2, 4)),
        ("", local + "distributed_type: MULTI_GPU\nnum_processes: 4\n", (1, 4, 4)),
        ("", local + "distributed_type: 'NO'\nnum_processes: 4\n", (1, 1, 1)),
        ("", local + "distributed_type: NO\nnum_processes: 4\n", (1, 1, 1)),
        ("--num_processes 8", local + "distributed_type: 'NO'\nnum_processes: 1\n", (1, 1, 1)),
        ("--multi_gpu --num_processes 8", local + "distributed_type: 'NO'\nnum_processes: 1\n", (1, 8, 8)),
        ("", local + "distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 4\n", (1, 1, 1)),
        ("--cpu", local + "distributed_type: MULTI_GPU\nnum_processes: 4\n", (1, 1, 1)),
        # DeepSpeed reaches other nodes over a hostfile: without one it trains on this node alone.
        ("", local + "distributed_type: DEEPSPEED\n" + two, ("unknown", 4, "unknown")),
        ("--deepspeed_multinode_launcher standard", local + "distributed_type: DEEPSPEED\n" + two, (2, 4, 8)),
        ("$FLAGS", local + "distributed_type: MULTI_GPU\n" + two, ("unknown", "unknown", "unknown")),
    ]:
        script = f"accelerate launch --config_file c.yaml {flags} t.py\n"
        workspace = Workspace(Path("/nonexistent"), {"run.sh": script, "c.yaml": text})
        (plan,) = build_plans([one(script)], workspace)
        facts = (plan.nodes, plan.processes_per_node, plan.world_size)
        assert tuple(map(shown, facts)) == expected, (flags, text)


def test_standalone_may_be_a_variable() -> None:
    assert meeting(one("PET_STANDALONE=1 torchrun t.py")).is_standalone
    assert not meeting(one("PET_STANDALONE=0 torchrun t.py")).is_standalone
    asked = rendezvous(one("PET_STANDALONE=1 torchrun --nnodes 2 t.py"))
    assert asked is not None
    assert asked.is_standalone
    assert asked.standalone is None  # no option says so


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("CUDA_VISIBLE_DEVICES=2,3 torchrun t.py", ("2", "3")),
        ("torchrun t.py", "absent"),
        ("CUDA_VISIBLE_DEVICES=$A torchrun t.py", "unknown"),
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed t.py", ("2", "3")),
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 t.py", ("0", "1")),
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed --include localhost:4,5 t.py", ("4", "5")),
        ("deepspeed --include localhost:7,7,2 t.py", ("2", "7")),
        ("CUDA_VISIBLE_DEVICES= deepspeed t.py", "absent"),
        ("CUDA_VISIBLE_DEVICES= torchrun t.py", ()),
        ("deepspeed --include a:0@b:0 t.py", "unknown"),
        ("CUDA_VISIBLE_DEVICES=0 deepspeed -H hosts t.py", "unknown"),
        ("CUDA_VISIBLE_DEVICES=0 accelerate launch --gpu_ids 2,3 t.py", ("2", "3")),
        ("CUDA_VISIBLE_DEVICES=0 accelerate launch --gpu_ids all t.py", ("0",)),
        ("CUDA_VISIBLE_DEVICES=0 accelerate launch $ARGS t.py", "unknown"),
        ("python main.py fit --trainer.devices '[1,2]'", ("1", "2")),
    ],
)
def test_the_devices_of_a_node(script: str, expected: object) -> None:
    fact = devices(one(script))
    assert (fact.get() if fact.is_known else fact.state) == expected
