"""The script reads a variable that another launcher sets than the one that starts it.

**What.** `RANK = int(os.environ["RANK"])`, `WORLD_SIZE` or `LOCAL_RANK` in code that every run comes to, while the job
file starts `srun python train.py` and sets no such variable. Or `OMPI_COMM_WORLD_RANK`, while `srun` or `torchrun`
starts the script; or `PMIX_RANK` under `srun --mpi=pmi2`.

**Why it hurts.** Slurm gives its tasks `SLURM_PROCID`, `SLURM_NTASKS` and `SLURM_LOCALID`, Open MPI
`OMPI_COMM_WORLD_RANK` and its relatives. Every task stops with `KeyError: 'RANK'`, after the job has waited in the
queue.

**Fix.** Read the variables of the launcher; or start `torchrun` once on each node; or set them where each task starts:
`srun bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python train.py'`.

**When it stays quiet.** The launch file sets the variable or reads another file that may; a container runs the tasks
(the PyTorch hook of enroot sets them); a module of the project sets the variable or asks a library that does
(submitit, `mmengine`, DeepSpeed, `mpi4py` for the variables of MPI); a local rank that chooses the GPU (DSL424); a
default, a handler of KeyError or a test is around; tests of the run decide whether the line is reached.

**Evidence.** The manual of srun, output environment variables: no `RANK`, `WORLD_SIZE`, `LOCAL_RANK`. The manual of
Open MPI 5: `OMPI_COMM_WORLD_RANK`. CPython: `os.environ[name]` raises KeyError.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.names import names_of
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import is_caught
from dslint.rules.names.refusedlines import severity_at
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL746",
    name="variable-srun-does-not-set",
    kind="script",
    severity=Severity.WARNING,
    summary="the script reads a variable of another launcher than the one that starts it: it stops with a KeyError",
    markers=(
        r"environ\[\s*[\"'](?:(?:LOCAL_)?RANK|WORLD_SIZE|PMIX_RANK|OMPI_COMM_WORLD_(?:LOCAL_)?(?:RANK|SIZE))[\"']",
    ),
    references=(
        "https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES",
        "https://github.com/ai-dynamo/aiconfigurator/pull/1554",
    ),
    depends_on_run=True,
    no_experiment="it takes Slurm or MPI; their variables are in their manuals",
)
# What may set the variables in a project: assignments, and libraries that do so for a job of Slurm or MPI.
_SETS = r"environ\[\s*[\"']%s[\"']\s*\]\s*=[^=]|(?:setdefault|putenv)\(\s*[\"']%s[\"']|environ\.update\("
_LIBRARIES = re.compile(r"\b(?:submitit|mmengine|mmcv|deepspeed|idr_torch|horovod|hostlist|load_dotenv|setenv)\b")
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_OF_MPI = re.compile(r"\bmpi4py\b|\bMPI_Init\b")
_READS = {
    "srun": {"RANK": "SLURM_PROCID", "SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"},
    "mpirun": {
        "RANK": "OMPI_COMM_WORLD_RANK",
        "SIZE": "OMPI_COMM_WORLD_SIZE",
        "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    },
    "torchrun": {"RANK": "RANK", "SIZE": "WORLD_SIZE", "LOCAL_RANK": "LOCAL_RANK"},
}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first line that every run comes to and that reads such a variable."""
    unset, launcher = run.context.unset.get_or(()), run.context.launcher.get_or("")
    modules = list(run.machine.program.ran())
    if not unset or launcher not in _READS or any(module.search(_LIBRARIES) for module in modules):
        return
    for name in unset:
        if name not in _OF_TORCHRUN and any(module.search(_OF_MPI) for module in modules):
            continue
        sets = re.compile(_SETS % (name, name))
        if any(module.search(sets) for module in modules):
            continue
        reads = [(m, node) for m in modules for node in m.nodes_of(ast.Subscript) if _reads(m, node, name)]
        sure = [(m, n) for m, n in reads if severity_at(m, n, run.sure_ways) is Severity.ERROR]
        if sure:
            yield _finding(run, launcher, name, *sure[0])


def _reads(module: Module, node: ast.Subscript, name: str) -> bool:
    is_name = isinstance(node.slice, ast.Constant) and node.slice.value == name and isinstance(node.ctx, ast.Load)
    is_environment = is_name and names_of(module.tree).qualified(node.value) == "os.environ"
    return is_environment and not is_caught(module, node, "KeyError")


def _finding(run: RunQuery, launcher: str, name: str, module: Module, node: ast.Subscript) -> Finding:
    number = "LOCAL_RANK" if name.endswith("LOCAL_RANK") else "SIZE" if name.endswith("SIZE") else "RANK"
    noun = "process" if launcher == "torchrun" else "task"
    other = ", or start `torchrun` once on each node" if name in _OF_TORCHRUN else ""
    return run.finding(
        META,
        module,
        node,
        f"`{launcher}` sets no `{name}`, and nothing else does: every {noun} stops here with a KeyError",
        hint=f"Read `{_READS[launcher][number]}`{other}",
        related=tuple(launch.place.labelled("this starts the tasks") for launch in run.context.launches[:1]),
    )


_JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n%ssrun %spython train.py\n"
_TRAIN = """\
import os

import torch
import torch.distributed as dist

%s


def setup():
    %s
    dist.init_process_group("nccl", rank=rank, world_size=int(os.environ["SLURM_NTASKS"]))
    torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))


if __name__ == "__main__":
    setup()
"""
_TOP, _INSIDE = 'rank = int(os.environ["RANK"])', 'rank = int(os.environ["%s"])'


def _project(top: str, inside: str, export: str = "", before: str = "") -> dict[str, str]:
    return {"job.sbatch": _JOB % (export, before), "train.py": _TRAIN % (top, inside)}


EXAMPLES = (
    bad("at the top of the script", _project(_TOP, "pass"), "train.py:6"),
    bad("in a function that every run calls", _project("", _INSIDE % "RANK", "", "--export=ALL "), "train.py:10"),
    bad(
        "MPI",
        {"run.sh": "mpirun -np 8 python train.py\n", "train.py": _TRAIN % (_TOP, "pass")},
        "train.py:6",
    ),
    bad(
        "a module that the script imports",
        {**_project("from ranks import rank", "pass"), "ranks.py": f"import os\n\n{_TOP}\n"},
        "ranks.py:3",
    ),
    bad("Open MPI under srun", _project("", _INSIDE % "OMPI_COMM_WORLD_RANK"), "train.py:10"),
    bad("Open MPI under torchrun", {
        "run.sh": "torchrun --nproc_per_node 8 train.py\n",
        "train.py": _TRAIN.replace("SLURM_LOCALID", "LOCAL_RANK") % ("", _INSIDE % "OMPI_COMM_WORLD_RANK"),
    }, "train.py:10"),
    bad("PMIx under another interface", _project(_INSIDE % "PMIX_RANK", "pass", "", "--mpi=pmi2 "), "train.py:6"),
    good("PMIx", _project(_INSIDE % "PMIX_RANK", "pass", "", "--mpi=pmix ")),
    good("PMIx, where the cluster decides", _project(_INSIDE % "PMIX_RANK", "pass")),
    good("a library of MPI", _project("from mpi4py import MPI\n" + _INSIDE % "OMPI_COMM_WORLD_RANK", "pass")),
    good("torchrun under mpirun", {
        "run.sh": "mpirun -np 2 torchrun --nnodes 2 --nproc_per_node 8 train.py\n",
        "train.py": _TRAIN % (_INSIDE % "OMPI_COMM_WORLD_RANK", "pass"),
    }, select="DSL746"),
    good("the variable of Slurm", _project("", _INSIDE % "SLURM_PROCID")),
    good("torchrun on each node", _project(_TOP, "pass", "", "torchrun --nproc_per_node 8 ").copy() | {
        "job.sbatch": "srun torchrun --nproc_per_node 8 train.py\n"}),
    good("each task gets it", _project(_TOP, "pass") | {
        "job.sbatch": (_JOB % ("", "")).replace("python train.py", "bash -c 'RANK=$SLURM_PROCID python train.py'")}),
    good("a file that may set it", _project(_TOP, "pass", "source ./cluster.env\n")),
    good("a container", _project(_TOP, "pass", "", "--container-image=nvcr.io#nvidia/pytorch:24.05-py3 ")),
    good("the script sets it", _project(f'os.environ["RANK"] = os.environ["SLURM_PROCID"]\n{_TOP}', "pass")),
    bad("a local rank that chooses no GPU", _project('print(os.environ["LOCAL_RANK"])', "rank = 0"), "train.py:6"),
    good("with a default", _project('rank = int(os.environ.get("RANK", 0))', "pass")),
    good("under a test", _project(
        "", 'if "RANK" in os.environ:\n        rank = int(os.environ["RANK"])\n    else:\n'
        '        rank = int(os.environ["SLURM_PROCID"])')),
)  # fmt: skip
