"""**What.** Plain `python train.py` starts a script that trains with others (`init_process_group`, `Accelerator`, a
Trainer of Lightning), and something says that there is more than one process to start: a Slurm job of several
tasks, several GPUs of a job, pod, container or task, or a config of `accelerate launch` that the same file
mentions.

**Why it hurts.** One process runs on one GPU, and the others are paid for and idle; or the process takes the number
of ranks from Slurm and waits for ranks that nobody starts, until the group times out.

**Fix.** `srun python train.py` where the script takes its rank from Slurm, `torchrun --nproc_per_node gpu train.py`,
or `accelerate launch train.py`.

**When it stays quiet.** For scripts that start processes themselves or use several GPUs in one (`DataParallel`,
`device_map`, `cuda:1`), with `CUDA_VISIBLE_DEVICES`, for one task or one GPU, and where a number is not known.
Scripts that stop at once without a launcher are DSL444. Trainers of transformers take all GPUs of a process
themselves.

**Evidence.** accelerate 1.15 and torch 2.13, run: without `RANK` in the environment `Accelerator()` is one process; a
group of two with one process ends in `DistStoreError: Timed out waiting for clients. 1/2 clients joined`. Lightning
2.6.0,
run with the variables that Slurm sets: with `SLURM_NTASKS=1` a Trainer of `devices=4` has a world of one
(`SLURMEnvironment.detect`); without the variable it starts four processes. Slurm sets it where a job states its tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.devices import VISIBLE
from dslint.model.launch.slurmjob import job_tasks, machine_gpus
from dslint.model.plan.rankuse import RankUse
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL446",
    name="one-process-for-several",
    kind="plan",
    severity=Severity.WARNING,
    summary="Plain `python` starts one process of a training script where there are several tasks or GPUs",
    depends_on_run=True,
    no_experiment="it takes a job with several GPUs; what one process does without a launcher is DSL444's experiment",
    references=(
        "https://slurm.schedmd.com/sbatch.html",
        "https://huggingface.co/docs/accelerate/basic_tutorials/launch",
    ),
    needs=("ranks",),
)

_ACCELERATE = """\
from accelerate import Accelerator

from mine import loader, model, optimizer

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(batch))
    optimizer.step()
    optimizer.zero_grad()
"""
_SLURM = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mine import Model, batches


def main():
    if "SLURM_PROCID" in os.environ:
        rank, local = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_LOCALID"])
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", rank=rank, world_size=int(os.environ["SLURM_NTASKS"]))
        model = DistributedDataParallel(Model().cuda(), device_ids=[local])
    for batch in batches():
        model(batch).backward()


if __name__ == "__main__":
    main()
"""
_LIGHTNING = """\
import lightning as L

from mine import Data, Model

trainer = L.Trainer(accelerator="gpu", devices=%s, strategy="ddp")
trainer.fit(Model(), Data())
"""
_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=%s\n#SBATCH --gres=gpu:%s\n\n%s\n"
_OPTION = """\
import argparse

import pytorch_lightning as pl

from mine import Data, Model

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int, default=1)
args = parser.parse_args()
trainer = pl.Trainer(accelerator="gpu", devices=args.gpus, strategy="ddp")
trainer.fit(Model(), Data())
"""
_POD = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: pytorch
              image: team/train:1
              command: ["python", "train.py"]
              resources:
                limits:
                  nvidia.com/gpu: %s
"""
_GROUP = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mine import Model, batches

torch.cuda.set_device(0)
dist.init_process_group("nccl")
model = DistributedDataParallel(Model().cuda(), device_ids=[0])
for batch in batches():
    model(batch).backward()
"""
_FILE = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 4\n"
_MAKE = "setup:\n\tcp acc.yaml ~/.cache/huggingface/accelerate/default_config.yaml\n\ntrain:\n\t%s train.py --lr 1\n"

EXAMPLES = (
    bad("no srun, a script that asks Slurm", {"job.sh": _JOB % (2, 2, "python train.py"), "train.py": _SLURM},
        "job.sh:6 warning"),
    bad("no srun for Lightning", {"job.sh": _JOB % (4, 4, "python train.py"), "train.py": _LIGHTNING % 4},
        "job.sh:6 warning"),
    bad("Lightning in a job of one task", {"job.sh": _JOB % (1, 4, "python train.py"), "train.py": _LIGHTNING % 4},
        "job.sh:6 warning"),
    bad("--ntasks, and an option of the script", {
        "job.sh": "#!/bin/bash\n#SBATCH --ntasks=1\n#SBATCH --gres=gpu:4\n\n\npython train.py --gpus 4",
        "train.py": _OPTION,
    }, "job.sh:6 warning"),
    bad("one of four GPUs", {"job.sh": _JOB % (1, "a100:4", "python -u train.py"), "train.py": _ACCELERATE},
        "job.sh:6 warning"),
    bad("a script that the job calls", {
        "job.sh": _JOB % (1, 4, "bash run.sh"), "run.sh": "python train.py\n", "train.py": _ACCELERATE,
    }, "run.sh:1 warning"),
    bad("one of two GPUs of each pod", {"job.yaml": _POD % 2, "train.py": _GROUP}, "job.yaml:14 warning"),
    bad("SkyPilot", {
        "task.yaml": "resources:\n  accelerators: A100:8\nrun: |\n  python train.py\n", "train.py": _ACCELERATE,
    }, "task.yaml:4 warning"),
    bad("a config that only accelerate launch reads", {
        "Makefile": _MAKE % "python", "acc.yaml": _FILE, "train.py": _ACCELERATE,
    }, "Makefile:5 warning"),
    good("srun", {"job.sh": _JOB % (2, 2, "srun python train.py"), "train.py": _SLURM}),
    good("srun for Lightning", {"job.sh": _JOB % (4, 4, "srun python train.py"), "train.py": _LIGHTNING % 4}),
    good("accelerate launch", {
        "job.sh": _JOB % (1, 4, "accelerate launch --num_processes 4 --num_machines 1 train.py"),
        "train.py": _ACCELERATE,
    }),
    good("one GPU", {"job.sh": _JOB % (1, 1, "python train.py"), "train.py": _ACCELERATE}),
    good("Lightning starts a process for each GPU itself, as no tasks are requested", {
        "job.sh": "#!/bin/bash\n#SBATCH --gres=gpu:4\npython train.py\n", "train.py": _LIGHTNING % 4,
    }),
    good("the variable that Lightning asks for is set by hand", {
        "job.sh": _JOB % (1, 4, "export SLURM_JOB_NAME=interactive\npython train.py"), "train.py": _LIGHTNING % 4,
    }),
    good("tasks for the CPUs of one GPU", {"job.sh": _JOB % (8, 1, "python train.py"), "train.py": _ACCELERATE}),
    good("one GPU a pod", {"job.yaml": _POD % 1, "train.py": _GROUP}),
    good("the model over several GPUs", {
        "job.sh": _JOB % (1, 4, "python train.py"),
        "train.py": _ACCELERATE.replace("from mine", "device_map = \"auto\"\nfrom mine"),
    }),
    good("the GPU is chosen", {
        "job.sh": _JOB % (1, 4, "CUDA_VISIBLE_DEVICES=0 python train.py"), "train.py": _ACCELERATE,
    }),
    good("accelerate launch reads the config", {
        "Makefile": _MAKE % "accelerate launch", "acc.yaml": _FILE, "train.py": _ACCELERATE,
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """One process where several are meant."""
    command, ranks = plan.command, plan.ranks
    if (
        command.launcher != "python"
        or ranks is None
        or VISIBLE in command.env
        or plan.processes_per_node.get_or(1) != 1
    ):
        return
    if plan.group is not None and "RANK" not in command.env:  # it stops at once: DSL444
        return
    told = _told(plan, ranks)
    if told is None:
        return
    message, places = told
    yield META.finding(
        (command.script or command.words[0]).location,
        message,
        hint=_HINTS[ranks.how] if not (ranks.by_slurm and job_tasks(command).get_or(1) > 1) else _SRUN,
        related=(*places, ranks.location.labelled("joins the others")),
        severity=Severity.INFO if command.in_docs else None,
        facts={"how": ranks.how},
    )


_SRUN = "Start it with `srun`"
_HINTS = {
    "group": "Start it with `torchrun --nproc_per_node gpu`, or give the machine one GPU",
    "accelerate": "Start it with `accelerate launch`",
    "lightning": _SRUN,
}


def _told(plan: RunPlan, ranks: RankUse) -> tuple[str, tuple[Location, ...]] | None:
    """What is said, and the places that say how many processes there are to start."""
    command = plan.command
    tasks, gpus = job_tasks(command), machine_gpus(command)
    if ranks.by_slurm and tasks.get_or(1) > 1 and "SLURM_PROCID" not in command.env:
        return (
            f"Slurm has {tasks.get()} tasks for this job, but without `srun` one process runs: it hangs or trains"
            " alone",
            tasks.origins,
        )
    if ranks.how == "lightning":
        is_told = any(_is_set_by_hand(command, name) for name in ("SLURM_NTASKS", "SLURM_JOB_NAME"))
        if is_told or tasks.get_or(0) != 1 or gpus.get_or(1) < 2:
            return None
        return (
            f"Lightning uses the one Slurm task as its only process: {gpus.get() - 1} of {gpus.get()} GPUs stay idle,"
            " whatever `devices` says",
            (*tasks.origins, *gpus.origins),
        )
    if gpus.get_or(1) > 1:
        return f"plain `python` is one process on one of {gpus.get()} GPUs: the others stay idle", gpus.origins
    unused = plan.unused
    if unused is not None and ranks.how == "accelerate":
        number = unused.fact("/num_processes", "num_processes")
        return (
            f"plain `python` reads no config of accelerate: one process instead of the {number.get()} that"
            f" `{unused.path.rpartition('/')[2]}` sets",
            number.origins,
        )
    return None


def _is_set_by_hand(command: LaunchCommand, name: str) -> bool:
    """The file sets the variable itself: what its directives make Slurm set is as Slurm means it."""
    fact = command.env.get(name)
    return fact is not None and not any(place.label.startswith("#SBATCH") for place in fact.origins)
