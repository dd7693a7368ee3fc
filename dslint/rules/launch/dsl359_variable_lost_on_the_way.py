"""**What.** A script exports a variable that the processes of the run read (`NCCL_SOCKET_IFNAME`,
`CUDA_VISIBLE_DEVICES`, `PYTORCH_CUDA_ALLOC_CONF`), and starts the launcher where it does not arrive: in a container
(`docker run` without `-e`), on the other hosts of Open MPI's `mpirun` (without `-x`), on another machine (`ssh`), in
a Ray job, in the tasks of `srun --export=NONE`, or through `sudo`. `#SBATCH --export=NONE` counts for each `srun` of
the job, too: what the job script exports does not arrive.

**Why it hurts.** The run continues as if the variable were not there: NCCL takes another interface and the ranks never
meet, or all GPUs are used. The line that sets it is there for all to read.

**Fix.** Hand it on: `docker run -e NCCL_SOCKET_IFNAME ...`, `ssh host NCCL_SOCKET_IFNAME=eth0 torchrun ...`,
`--runtime-env-json` of Ray. `unset SLURM_EXPORT_ENV` in a job with `--export=NONE`, or `srun --export=ALL`.

**When it stays quiet.** For variables that are passed on by name, from a file or in the command itself, for those
that only print (`NCCL_DEBUG`), and when words of the program that is around cannot be read.

**Evidence.** The programs themselves, run with a recorder in the place of the launcher
(`tests/launchers/test_programs_around.py`); for containers and Ray, their manuals.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import is_for_every_process
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL359",
    name="variable-lost-on-the-way",
    kind="launch",
    severity=Severity.WARNING,
    summary="A variable is exported, and the launcher runs where it does not arrive",
    references=("https://docs.docker.com/reference/cli/docker/container/run/#env",),
    needs=("/NCCL_|CUDA_VISIBLE_DEVICES|PYTORCH_|MASTER_(?:ADDR|PORT)/",),
    no_experiment="it takes a container or another machine; tests run the programs that can be had",
)

_SCRIPT = {"train.py": "print()\n"}
_SET = "export NCCL_SOCKET_IFNAME=eth0\n"
_MPI = "mpirun -np 16 -H a:8,b:8 --map-by slot %s -x PATH python train.py\n"
_RUN = "torchrun --nproc_per_node 8 train.py\n"

EXAMPLES = (
    bad("a container", {"run.sh": f"{_SET}docker run --gpus all image {_RUN}", **_SCRIPT}, "run.sh:1 warning"),
    bad("another machine", {"run.sh": f"{_SET}ssh node1 {_RUN}", **_SCRIPT}, "run.sh:1 warning"),
    bad(
        "a job of Ray",
        {"run.sh": f"{_SET}ray job submit --working-dir . -- {_RUN}", **_SCRIPT},
        "run.sh:1 warning",
    ),
    bad("the other host of Open MPI", {"run.sh": f"{_SET}{_MPI % ''}", **_SCRIPT}, "run.sh:1 warning"),
    bad("tasks of Slurm without it", {"run.sh": f"{_SET}srun --export=NONE {_RUN}", **_SCRIPT}, "run.sh:1 warning"),
    bad(
        "a list of names without ALL",
        {
            "run.sh": f"{_SET}export SEED=1\nsrun --export=SEED bash -c '{_RUN.strip()}'\n",
            **_SCRIPT,
        },
        "run.sh:1 warning",
    ),
    bad(
        "a job that hands over nothing",
        {
            "job.sh": f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --export=NONE\n{_SET}srun {_RUN}",
            **_SCRIPT,
        },
        "job.sh:4 warning",
    ),
    good(
        "such a job that switches it off",
        {
            "job.sh": f"#!/bin/bash\n#SBATCH --export=NONE\nunset SLURM_EXPORT_ENV\n{_SET}srun {_RUN}",
            **_SCRIPT,
        },
    ),
    good("all variables and one more", {"run.sh": f"{_SET}srun --export=ALL,SEED=1 {_RUN}", **_SCRIPT}),
    good("named for the tasks", {"run.sh": f"{_SET}srun --export=NCCL_SOCKET_IFNAME {_RUN}", **_SCRIPT}),
    good("handed on by Open MPI", {"run.sh": f"{_SET}{_MPI % '-x NCCL_SOCKET_IFNAME'}", **_SCRIPT}),
    good("one host", {"run.sh": f"{_SET}{(_MPI % '').replace(',b:8', '')}", **_SCRIPT}),
    good(
        "passed on by name",
        {"run.sh": f"{_SET}docker run --gpus all --ipc=host -e NCCL_SOCKET_IFNAME image {_RUN}", **_SCRIPT},
    ),
    good("in the command", {"run.sh": f"{_SET}ssh node1 'NCCL_SOCKET_IFNAME=eth0 {_RUN.strip()}'\n", **_SCRIPT}),
    good("a file of variables", {"run.sh": f"{_SET}docker run --env-file env image {_RUN}", **_SCRIPT}),
    good("the same machine", {"run.sh": f"{_SET}nohup {_RUN}", **_SCRIPT}),
    good("it only prints", {"run.sh": f"export NCCL_DEBUG=INFO\nssh node1 {_RUN}", **_SCRIPT}),
)

_OF_OPEN_MPI = frozenset(
    {"-x", "--mca", "-mca", "--allow-run-as-root", "--map-by", "-map-by", "--bind-to", "-bind-to", "--oversubscribe"}
)
# What `init_process_group` looks up where no launcher sets it.
_OF_GROUP = ("MASTER_ADDR", "MASTER_PORT")
# They change what is printed, and nothing else.
_ONLY_PRINT = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Exported variables that a launcher does not find."""
    del context
    told: set[str] = set()
    for command in doc.commands:
        yield from _past_open_mpi(doc, command, told)
        for name in sorted(command.withheld):
            is_asked = is_for_every_process(name) or (name in _OF_GROUP and command.launcher == "srun")
            if name not in told and name not in _ONLY_PRINT and is_asked:
                told.add(name)
                yield from _finding(doc, command, name)


def _past_open_mpi(doc: LaunchDoc, command: LaunchCommand, told: set[str]) -> Iterator[Finding]:
    """Variables that ``mpirun`` of Open MPI leaves behind on its own host: it hands over what ``-x`` names."""
    words = [word.raw for word in (*command.words, *(word for group in command.wrappers for word in group))]
    if "mpirun" not in (command.launcher, command.outer) or not _is_open_mpi(words) or not _has_hosts(words):
        return
    for name, fact in command.env.items():
        is_before = any(
            place.path == command.location.path and place.span.end <= command.location.span.start
            for place in fact.origins[:1]
        )
        if name in told or not is_before or name in _ONLY_PRINT or not is_for_every_process(name):
            continue
        if name == "CUDA_VISIBLE_DEVICES" or any(name in raw for raw in words):
            continue
        told.add(name)
        yield META.finding(
            fact.origins[0],
            f"`{name}` stays on this host: `mpirun` of Open MPI hands other hosts only what `-x` names",
            hint=f"Write `mpirun -x {name} ...`",
            related=(command.location.labelled("the launcher"),),
            severity=Severity.INFO if doc.in_docs else None,
            facts={"variable": name},
        )


def _is_open_mpi(words: list[str]) -> bool:
    """Options that no other ``mpirun`` has."""
    return any(word.partition("=")[0] in _OF_OPEN_MPI for word in words)


def _has_hosts(words: list[str]) -> bool:
    """Several hosts are written out."""
    pairs = pairwise(words)
    return any(first in ("-H", "-host", "--host") and second.count(",") for first, second in pairs)


def _finding(doc: LaunchDoc, command: LaunchCommand, name: str) -> Iterator[Finding]:
    fact = command.withheld[name]
    words = [word.raw for group in command.wrappers for word in group]
    if name in command.env or not fact.origins or any(name in raw for raw in words):
        return
    outer = command.outer or "the program around it"
    program = command.wrappers[-1][0].raw if command.wrappers and command.wrappers[-1] else outer
    whom, them = ("its tasks", "them") if command.launcher == "srun" else (f"`{command.launcher}`", "it")
    yield META.finding(
        fact.origins[0],
        f"`{name}` does not reach {whom}: `{program}` starts {them} without the variables of this shell",
        hint=f"Pass `{name}` on to the command",
        related=(command.location.labelled("the launcher that does not find it"),),
        severity=Severity.INFO if doc.in_docs else None,
        facts={"variable": name},
    )
