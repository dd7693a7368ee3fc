"""The world size that each kind of launch gives the batch arithmetic, and the values that a script's parser gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.source import SourceFile
from dslint.model.launch.document import read_launch_docs
from dslint.model.plan.runplan import RunPlan, build_plans
from dslint.model.workspace import Workspace

SCRIPT = """\
import deepspeed
from options import get_args

args = get_args()
engine, *_ = deepspeed.initialize(args=args, model=None)
"""
OPTIONS = """\
import argparse

import deepspeed


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--steps", type=int, default=10)
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()
"""
CONFIG = '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}\n'
JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node={}\n#SBATCH --gres=gpu:4\n"


def plan_of(command: str) -> RunPlan:
    files = {"train.py": SCRIPT, "options.py": OPTIONS, "ds.json": CONFIG, "hosts": "a slots=4\nb slots=4\n"}
    files["run.sh"] = command + "\n"
    workspace = Workspace(Path("/nonexistent"), files)
    docs = read_launch_docs(SourceFile("run.sh", files["run.sh"]), "shell", workspace)
    (plan,) = build_plans([c for d in docs for c in d.commands], workspace)
    return plan


@pytest.mark.parametrize(
    ("command", "world"),
    [
        ("deepspeed --hostfile hosts train.py", 8),
        ("deepspeed --include localhost:0,1,2,3 train.py", 4),
        ("deepspeed --hostfile hosts --include a:0,1@b train.py", 6),
        ("deepspeed --hostfile hosts --exclude a:0 train.py", 7),
        ("deepspeed --hostfile hosts --num_nodes 1 --num_gpus 2 train.py", 2),
        ("CUDA_VISIBLE_DEVICES=0,1 deepspeed train.py", 2),
        (JOB.format(4) + "srun python train.py", 8),
        (JOB.format(1) + "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 train.py", 8),
        ("mpirun -np 8 python train.py", 8),
        ("accelerate launch --num_processes 8 --num_machines 2 train.py", 8),
    ],
)
def test_world_of_the_batch(command: str, world: int) -> None:
    plan = plan_of(f"{command} --deepspeed_config ds.json")
    assert plan.batch_world.get() == world
    assert plan.batch.train.get() == 32


def test_arguments_of_a_parser_in_another_module() -> None:
    plan = plan_of("deepspeed --num_gpus 2 train.py --deepspeed_config ds.json --st=20")
    assert plan.arguments["steps"].get() == 20
    assert plan.arguments["local_rank"].at() == "-1 (options.py:8)"
