"""**What.** A variable of Slurm is used for a number that it is not: `--node_rank $SLURM_LOCALID`, `--nproc_per_node
$SLURM_NTASKS` or `$SLURM_NNODES`, `--nnodes $SLURM_JOB_ID`.

**Why it hurts.** `SLURM_LOCALID` counts the tasks of one node: with one launcher a node it is 0 on every node, all
claim to be node 0, and the rendezvous times out. `SLURM_NTASKS` is the number of launchers in the whole job: with one
a node, `--nproc_per_node` gets the number of nodes, most GPUs stay idle, or some get two processes.
`SLURM_CPUS_PER_TASK` counts CPUs.

**Fix.** `--node_rank $SLURM_NODEID`, `--nnodes $SLURM_NNODES`, `--nproc_per_node $SLURM_GPUS_ON_NODE`.

**When it stays quiet.** For one node, when several tasks run on a node, for `--node_rank` with a rendezvous that
numbers the nodes itself, and where the number is known and right by chance.

**Evidence.** Slurm's manual of `srun` (output environment variables).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.meeting import meeting
from dslint.model.launch.pernode import written
from dslint.model.launch.slurmjob import PER_NODE, machine_gpus, step_tasks
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL379",
    name="slurm-variable-of-something-else",
    kind="launch",
    severity=Severity.WARNING,
    summary="A variable of Slurm is given to a launcher for a number that it is not",
    references=("https://slurm.schedmd.com/srun.html",),
    no_experiment="which value a variable has is Slurm's manual; what follows is DSL311 and DSL320",
    needs=(r"/\bSLURM_\w+/",),
)

_SCRIPT = {"train.py": "print()\n"}
_HEAD = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
    'export HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
)
_INNER = (
    "srun bash -c 'torchrun --nnodes=%s --node_rank=%s --nproc_per_node=%s --master_addr=$HEAD --master_port=29500"
    " train.py'\n"
)
_C10D = (
    "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=%s --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500"
    " train.py\n"
)

EXAMPLES = (
    bad("the rank inside a node", {"job.sbatch": _HEAD + _INNER % (2, "$SLURM_LOCALID", 8), **_SCRIPT},
        "job.sbatch:6"),
    bad("the launchers of the job", {"job.sbatch": _HEAD + _C10D % "$SLURM_NTASKS", **_SCRIPT}, "job.sbatch:6"),
    bad("nodes as processes", {"job.sbatch": _HEAD + _C10D % "$SLURM_JOB_NUM_NODES", **_SCRIPT}, "job.sbatch:6"),
    bad("CPUs as processes", {"job.sbatch": _HEAD + _C10D % "$SLURM_CPUS_PER_TASK", **_SCRIPT}, "job.sbatch:6"),
    bad("by way of a variable", {
        "job.sbatch": _HEAD + "GPUS=$SLURM_NTASKS_PER_NODE\n" + _C10D % "$GPUS", **_SCRIPT,
    }, "job.sbatch:7"),
    bad("in a script that each node runs", {
        "node.sh": "torchrun --nnodes=4 --node_rank=$SLURM_LOCALID --nproc_per_node=8 --master_addr=$1 train.py\n",
        **_SCRIPT,
    }, "node.sh:1"),
    good("the right ones", {
        "job.sbatch": _HEAD + _INNER % ("$SLURM_NNODES", "$SLURM_NODEID", "$SLURM_GPUS_ON_NODE"), **_SCRIPT,
    }),
    good("one task a node", {"job.sbatch": _HEAD + _INNER % ("$SLURM_NTASKS", "$SLURM_PROCID", 8), **_SCRIPT}),
    good("a rendezvous that numbers the nodes", {
        "job.sbatch": _HEAD + (_C10D % 8).replace("torchrun", "torchrun --node_rank=$SLURM_LOCALID"), **_SCRIPT,
    }),
)  # fmt: skip

_RANK, _NODES, _PROCESSES = ("--node_rank", "--machine_rank"), ("--nnodes", "--num_machines"), ("--nproc_per_node",)
_VARIABLE = re.compile(r"[\"']?\\?\$\{?(SLURM_\w+)\}?[\"']?")
_JOB = {"SLURM_JOB_ID": "the number of the job", "SLURM_JOBID": "the number of the job"}
_CPUS = {
    "SLURM_CPUS_PER_TASK": "the CPUs of a task",
    "SLURM_CPUS_ON_NODE": "the CPUs of the node",
    "SLURM_JOB_CPUS_PER_NODE": "the CPUs of the node",
}
_COUNTS = {"SLURM_NNODES": "the number of nodes", "SLURM_JOB_NUM_NODES": "the number of nodes"}
_TASKS = {
    "SLURM_NTASKS": "the tasks of the whole job, here one a node",
    "SLURM_NPROCS": "the tasks of the whole job, here one a node",
    "SLURM_NTASKS_PER_NODE": "the tasks of a node, here one",
}
_LOCAL = {"SLURM_LOCALID": "0 on every node, the number of a task inside its node"}
_WRONG = (
    (_RANK, {**_LOCAL, **_JOB, **_COUNTS}, "SLURM_NODEID"),
    (_NODES, {**_JOB, **_CPUS, "SLURM_NODEID": "the number of this node", "SLURM_PROCID": "the number of a task"},
     "SLURM_NNODES"),
    (_PROCESSES, {**_JOB, **_CPUS, **_COUNTS, **_TASKS}, "SLURM_GPUS_ON_NODE"),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Options of a launcher whose value is another number of the job."""
    del context
    for command in doc.commands:
        if command.launcher not in PER_NODE or step_tasks(command).per_node.get_or(1) > 1:
            continue
        for names, table, meant in _WRONG:
            yield from _of_option(doc, command, names, table, meant)


def _of_option(
    doc: LaunchDoc, command: LaunchCommand, names: tuple[str, ...], table: dict[str, str], meant: str
) -> Iterator[Finding]:
    flag = command.launcher_flag(*names)
    if flag is None or flag.value is None or command.location.path != doc.source.path:
        return
    if names is _RANK and meeting(command).backend.get_or("static") != "static":
        return
    for value in written(doc, flag.value):
        found = _VARIABLE.fullmatch(value.text.strip())
        if found is None or found[1] not in table:
            continue
        if names is _PROCESSES and _is_right(command):
            return
        yield META.finding(
            flag.location,
            f"`{flag.name}` is given `${found[1]}`: {table[found[1]]}",
            hint=f"Write `${meant}`",
            related=(value.location,) if value.location != flag.value.location else (),
            severity=Severity.INFO if doc.in_docs else None,
            facts={"option": flag.name, "variable": found[1]},
        )
        return


def _is_right(command: LaunchCommand) -> bool:
    """The number is known, and it is that of the GPUs, or there is only one of them."""
    gpus, told = machine_gpus(command).get_or(0), command.processes_per_node.get_or(-1)
    return told == gpus or gpus == 1
