"""**What.** `mpirun` or `srun` starts a script several times on a node, and the script takes its GPU from `LOCAL_RANK`:
`os.environ["LOCAL_RANK"]`, `os.environ.get("LOCAL_RANK", 0)`, or a default of 0 that it puts there itself.

**Why it hurts.** torchrun, deepspeed and accelerate set `LOCAL_RANK`; MPI sets a variable of its own
(`OMPI_COMM_WORLD_LOCAL_RANK`), Slurm `SLURM_LOCALID`. Without a default the script stops with a KeyError; with 0 all
processes of a node use GPU 0: out of memory, `Duplicate GPU detected`, or tensors on two devices.

**Fix.** Read the variable of the launcher, too, before the default; or start `torchrun` once on each node.

**When it stays quiet.** For one process, when the launch file or the command sets `LOCAL_RANK`, when a module speaks of
`SLURM_LOCALID`, puts the number of MPI there or counts devices, and for libraries that find the device themselves
(accelerate, DeepSpeed, Lightning, transformers, Horovod).

**Evidence.** Open MPI 4 and 5 (`mpirun` sets `OMPI_COMM_WORLD_LOCAL_RANK` and no `LOCAL_RANK`); the manual of `srun`
(output environment variables).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL424",
    name="local-rank-never-set",
    kind="plan",
    severity=Severity.WARNING,
    summary="A script that mpirun or srun starts takes its GPU from LOCAL_RANK, which neither of them sets",
    depends_on_run=True,
    references=(
        "https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html",
        "https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES",
    ),
    no_experiment="it takes MPI or Slurm and several GPUs on a node; the variables are in their manuals",
    needs=("unset_rank",),
)

_SCRIPT = """\
import os

import torch
import torch.distributed as dist

from mine import Net, batches


%s

def main():
    rank = int(os.environ["%s"])
    dist.init_process_group("nccl", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    %s
    model = torch.nn.parallel.DistributedDataParallel(Net().cuda())
    for batch in batches():
        model(batch.cuda()).mean().backward()


main()
"""
_ENV = 'os.environ["WORLD_SIZE"] = os.environ["%s"]\n'
_MPI = _ENV % "OMPI_COMM_WORLD_SIZE"
_SLURM = _ENV % "SLURM_NTASKS"
_RUN = "mpirun -np 4 python train.py\n"
_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\nsrun python train.py\n"


def _mpi(device: str, head: str = _MPI) -> dict[str, str]:
    return {"run.sh": _RUN, "train.py": _SCRIPT % (head, "OMPI_COMM_WORLD_RANK", device)}


def _slurm(device: str, head: str = _SLURM) -> dict[str, str]:
    return {"job.sh": _JOB, "train.py": _SCRIPT % (head, "SLURM_PROCID", device)}


_DIRECT = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'
_NAMED = 'local_rank = int(os.environ.get("LOCAL_RANK", 0))\n    torch.cuda.set_device(local_rank)'
_HELPER = 'def local_rank():\n    return int(os.getenv("LOCAL_RANK", "0"))\n\n'
_PUT = 'os.environ.setdefault("LOCAL_RANK", "0")\n'
_OF_MPI = 'os.environ["LOCAL_RANK"] = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]\n'

EXAMPLES = (
    bad("MPI", _mpi(_DIRECT), "run.sh:1"),
    bad("Slurm, by a name", _slurm(_NAMED), "job.sh:5"),
    bad("a function of the module", _mpi('torch.cuda.set_device(f"cuda:{local_rank()}")', _HELPER + _MPI), "run.sh:1"),
    bad("a default that the script sets", _mpi(_DIRECT, _PUT + _MPI), "run.sh:1"),
    good("the variable of MPI", _mpi(_DIRECT, _OF_MPI + _MPI)),
    good("the variable of Slurm", _slurm('torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))')),
    good("the command sets it", {
        **_slurm(_DIRECT),
        "job.sh": _JOB.replace("srun python", "srun bash -c 'LOCAL_RANK=$SLURM_LOCALID python").replace(".py", ".py'"),
    }),
    good("one process", {**_mpi(_NAMED), "run.sh": "mpirun -np 1 python train.py\n"}),
)  # fmt: skip

_COUNTS = ("-np", "-n", "--np", "--n", "-npernode", "--npernode", "-ppn")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The variable beside the number of processes."""
    command, found = plan.command, plan.unset_rank
    if found is None or plan.processes_per_node.get_or(2) < 2 or plan.world_size.get_or(2) < 2:
        return
    if not plan.world_size.is_known and command.launcher_flag(*_COUNTS) is None:
        return
    effect = "it stops with a KeyError" if found.stops else "every process takes GPU 0"
    places = (found.asked.labelled("the script asks for it"), found.used.labelled("its GPU"))
    yield META.finding(
        (command.script or command.words[0]).location,
        f"`{command.launcher}` sets no `LOCAL_RANK`, from which this script takes its GPU: {effect}",
        hint="Read the variable of the launcher for it, or start `torchrun` once on each node",
        related=(*places, *((found.set_at,) if found.set_at is not None else ())),
    )
