"""Scripts that start their processes themselves, under plain python."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.model.launch.document import read_launch_docs
from dslint.model.plan.runplan import RunPlan, build_plans
from dslint.model.workspace import Workspace

SCRIPT = """\
import argparse

import torch
import torch.multiprocessing as mp

GPUS = 4


def worker(rank, size):
    pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=1)
    args = parser.parse_args()
    size = torch.cuda.device_count()
    CALL


if __name__ == "__main__":
    main()
"""


def plan_of(call: str, line: str) -> RunPlan:
    files = {"run.sh": line + "\n", "t.py": SCRIPT.replace("CALL", call)}
    workspace = Workspace(Path("/nonexistent"), files)
    docs = read_launch_docs(SourceFile("run.sh", files["run.sh"]), "shell", workspace)
    (plan,) = build_plans([c for d in docs for c in d.commands], workspace)
    return plan


@pytest.mark.parametrize(
    ("call", "line", "expected"),
    [
        ("mp.spawn(worker, args=(2,), nprocs=2)", "python t.py", (1, 2, 2)),
        ("mp.spawn(worker, (2,), 2, True)", "python t.py", (1, 2, 2)),
        ("mp.spawn(worker, nprocs=GPUS)", "python t.py", (1, 4, 4)),
        ("mp.spawn(worker, nprocs=size)", "CUDA_VISIBLE_DEVICES=0,3 python t.py", (1, 2, 2)),
        ("mp.spawn(worker, nprocs=size)", "python t.py", (1, "unknown", "unknown")),
        ("mp.spawn(worker, nprocs=args.gpus)", "python t.py --gpus 4", (1, 4, 4)),
        ("mp.spawn(worker, nprocs=args.gpus)", "python t.py", (1, "unknown", "unknown")),
        ("mp.spawn(worker, nprocs=2)", "python t.py --nodes 2", ("absent", 2, "unknown")),
        ("mp.spawn(worker, nprocs=2)", "python t.py $@", ("absent", 2, "unknown")),
        ("mp.start_processes(worker, nprocs=3)", "python t.py", (1, 3, 3)),
        # Under a launcher each of its processes would start more.
        ("mp.spawn(worker, nprocs=2)", "torchrun --nproc_per_node 4 t.py", (1, 4, 4)),
        ("if args.gpus > 1:\n        mp.spawn(worker, nprocs=2)", "python t.py", ("absent", "absent", "absent")),
        ("print(args)", "python t.py", ("absent", "absent", "absent")),
    ],
)
def test_processes_that_a_script_starts(call: str, line: str, expected: tuple[object, ...]) -> None:
    plan = plan_of(call, line)
    assert (shown(plan.nodes), shown(plan.processes_per_node), shown(plan.world_size)) == expected
