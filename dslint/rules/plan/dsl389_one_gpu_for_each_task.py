"""**What.** Slurm gives each task one GPU (`--gpus-per-task=1`, `--gpu-bind=single:1`), and the script takes the
device with the number of its task: `torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))`, also in a module that
the script imports.

**Why it hurts.** With `--gpus-per-task` every task sees its own GPU alone, as number 0. Task 1 of a node asks for
device 1 and stops: `CUDA error: invalid device ordinal`.

**Fix.** `#SBATCH --gpus-per-node=4` in place of `--gpus-per-task=1`, so that all tasks of a node see all GPUs; or
`torch.cuda.set_device(0)`.

**When it stays quiet.** For one task a node, when the GPUs are given to the node, with another `--gpu-bind`, and
where the script counts the devices that it sees.

**Evidence.** Slurm's manual of `srun`: `--gpus-per-task` binds each task to its GPUs (`--gpu-bind=per_task`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.slurmjob import one_gpu_of_task, step_tasks
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL389",
    name="one-gpu-for-each-task",
    kind="plan",
    severity=Severity.WARNING,
    summary="Slurm shows each task one GPU, and the script takes the one with the number of its task",
    depends_on_run=True,
    no_experiment="it takes Slurm and several GPUs on a node",
    references=(
        "https://slurm.schedmd.com/srun.html#OPT_gpus-per-task",
        "https://slurm.schedmd.com/srun.html#OPT_gpu-bind",
    ),
    needs=("local_device",),
)

_TRAIN = """\
import os

import torch
import torch.distributed as dist

local = int(os.environ["SLURM_LOCALID"])
torch.cuda.set_device(%s)
dist.init_process_group(
    "nccl", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"])
)
dist.barrier()
dist.destroy_process_group()
"""
_JOIN = """\
import os

import torch


def join():
    rank = int(os.environ["SLURM_PROCID"])
    local = %s
    torch.cuda.set_device(torch.device("cuda", local))
"""
_JOB = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=%s\n#SBATCH %s\n"
    "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1) MASTER_PORT=29500\n"
    "srun %spython train.py\n"
)


def _project(tasks: int, gpus: str, device: str = "local", options: str = "") -> dict[str, str]:
    return {"job.sbatch": _JOB % (tasks, gpus, options), "train.py": _TRAIN % device}


EXAMPLES = (
    bad("one GPU for each of four tasks", _project(4, "--gpus-per-task=1"), "train.py:7"),
    bad("an option of the step", _project(4, "--gres=gpu:4", options="--gpus-per-task=1 "), "train.py:7"),
    bad("bound to one", _project(4, "--gres=gpu:4", options="--gpu-bind=single:1 "), "train.py:7"),
    bad("the variable itself", _project(2, "--gpus-per-task=1", 'int(os.environ["SLURM_LOCALID"])'), "train.py:7"),
    bad("a module of the project takes it", {
        **_project(4, "--gpus-per-task=1"),
        "train.py": "from cluster import join\n\njoin()\n",
        "cluster.py": _JOIN % 'int(os.environ["SLURM_LOCALID"])',
    }, "cluster.py:9"),
    good("a module that counts the devices", {
        **_project(4, "--gpus-per-task=1"),
        "train.py": "from cluster import join\n\njoin()\n",
        "cluster.py": _JOIN % "rank % torch.cuda.device_count()",
    }),
    good("all GPUs for all tasks", _project(4, "--gpus-per-node=4")),
    good("one task a node", _project(1, "--gpus-per-task=1")),
    good("not bound", _project(4, "--gpus-per-task=1", options="--gpu-bind=none ")),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Devices by the number of the task, where each task sees one."""
    command = plan.command
    if plan.local_device is None or command.conditions:
        return
    place = one_gpu_of_task(command)
    if place is None:
        return
    tasks = step_tasks(command).per_node
    if tasks.get_or(1) < 2 or "CUDA_VISIBLE_DEVICES" in command.env:
        return
    yield META.finding(
        plan.local_device,
        "each task sees one GPU, as number 0, and task 1 of a node asks for number 1: `invalid device ordinal`",
        hint="Give the GPUs to the node (`--gpus-per-node`), or take device 0",
        related=(place, command.location.labelled("the command that starts this run")),
        severity=Severity.INFO if command.in_docs else None,
    )
