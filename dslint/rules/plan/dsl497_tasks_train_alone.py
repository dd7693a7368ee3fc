"""**What.** `srun` or `mpirun` starts a script several times, and nothing tells these processes of each other: the
script uses `Accelerator()` or joins a group from the variables `RANK` and `WORLD_SIZE`, which neither Slurm nor
the launch file sets, and it asks for no variable of Slurm.

**Why it hurts.** `Accelerator()` without `RANK` is one process: every task trains alone, on the same data, on the
same GPU, and all write the same checkpoints. `init_process_group()` stops with `environment variable RANK expected,
but not set`.

**Fix.** One launcher a node: `srun --ntasks-per-node=1 torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 ...
train.py`; or export `RANK=$SLURM_PROCID` and its like on each task.

**When it stays quiet.** Where the launch file sets `RANK`, `WORLD_SIZE` or `LOCAL_RANK`, where a module of the script
speaks of variables of Slurm, MPI or PMI, for one task, and for scripts that start processes themselves.

**Evidence.** accelerate 1.15, run: two processes with `SLURM_PROCID`, `SLURM_LOCALID` and `SLURM_NTASKS` each report
`num_processes` 1. torch 2.13 for the group.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.rankuse import ACCELERATE, GROUP
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL497",
    name="tasks-train-alone",
    kind="plan",
    severity=Severity.WARNING,
    summary="Tasks of srun or mpirun run a script that only torchrun or accelerate launch tells who it is",
    depends_on_run=True,
    no_experiment="it takes Slurm; the evidence was seen with its variables alone",
    references=("https://slurm.schedmd.com/srun.html", "https://docs.pytorch.org/docs/stable/elastic/run.html"),
    needs=("ranks",),
)

_ACCELERATE = """\
from accelerate import Accelerator

from mine import loader, model, optimizer


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    prepared, adam, batches = accelerator.prepare(model, optimizer, loader)
    for batch in batches:
        accelerator.backward(prepared(batch))
        adam.step()
        adam.zero_grad()


if __name__ == "__main__":
    main()
"""
_GROUP = """\
import torch.distributed as dist

from mine import loader, model

dist.init_process_group("nccl")
for batch in loader:
    model(batch).backward()
"""
_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\n%s\n"
_NAMES = "srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=4 python train.py'"

EXAMPLES = (
    bad("accelerate", {"job.sh": _JOB % "srun python train.py", "train.py": _ACCELERATE}, "job.sh:5 warning"),
    bad("tasks of srun", {"job.sh": "srun -N 2 -n 8 --gpus-per-node=4 python -u train.py\n", "train.py": _ACCELERATE},
        "job.sh:1 warning"),
    bad("a group", {"job.sh": _JOB % "srun python train.py", "train.py": _GROUP}, "job.sh:5 warning"),
    bad("a script that srun calls", {
        "job.sh": _JOB % "srun bash run.sh", "run.sh": "python train.py\n", "train.py": _ACCELERATE,
    }, "run.sh:1 warning"),
    bad("MPI", {"run.sh": "mpirun -np 4 python train.py\n", "train.py": _GROUP}, "run.sh:1 warning"),
    good("the variables are set on each task", {"job.sh": _JOB % _NAMES, "train.py": _ACCELERATE}),
    good("a launcher on the node", {
        "job.sh": _JOB.replace("node=4", "node=1", 1) % "srun torchrun --nproc_per_node 4 train.py",
        "train.py": _ACCELERATE,
    }),
    good("one task", {"job.sh": _JOB.replace("=4", "=1") % "srun python train.py", "train.py": _ACCELERATE}),
    good("the script asks Slurm", {
        "job.sh": _JOB % "srun python train.py",
        "train.py": "import os\n\nos.environ[\"RANK\"] = os.environ[\"SLURM_PROCID\"]\n" + _ACCELERATE,
    }),
)  # fmt: skip
_SET = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Tasks that do not know of each other."""
    command, ranks = plan.command, plan.ranks
    if command.launcher not in ("srun", "mpirun") or ranks is None or plan.world_size.get_or(1) < 2:
        return
    if ranks.how not in (ACCELERATE, GROUP) or ranks.by_scheduler or not ranks.is_certain:
        return
    if ranks.how == ACCELERATE and command.launcher != "srun":  # accelerate reads some variables of MPI
        return
    if any(not command.variable(name).is_absent for name in _SET):
        return
    count = plan.world_size.get()
    effect = "each trains alone, on the same GPU" if ranks.how == ACCELERATE else "each stops, since `RANK` is not set"
    yield META.finding(
        (command.script or command.words[0]).location,
        f"`{command.launcher}` starts {count} processes, but nothing connects them: {effect}",
        hint="Start `torchrun` or `accelerate launch` once on each node",
        related=(*plan.world_size.origins, ranks.location.labelled("asks for `RANK` and `WORLD_SIZE`")),
        severity=Severity.INFO if command.in_docs else None,
        facts={"how": ranks.how, "launcher": command.launcher},
    )
