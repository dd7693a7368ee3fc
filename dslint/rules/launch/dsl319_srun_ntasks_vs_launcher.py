"""**What.** `srun` starts several tasks on a node, and each of them is a launcher that starts the processes of a whole
node: `torchrun`, `deepspeed` or `accelerate launch`, also in a script of the project that `srun` calls.

**Why it hurts.** Eight tasks of `torchrun --nproc_per_node 8` are 64 processes for 8 GPUs. The agents of one node claim
the same rank and the same port: all but one stop with `EADDRINUSE`, or the rendezvous takes two agents of one node for
two nodes and the other node waits forever.

**Fix.** One task a node: `#SBATCH --ntasks-per-node=1`, or `srun --ntasks=$SLURM_NNODES --ntasks-per-node=1`, which the
fix inserts. Or leave the launcher out and let Slurm start the processes.

**When it stays quiet.** With one task a node, when each task is counted as a node (`--nnodes` is the number of tasks,
or one process a launcher), when options may be hidden, and where the number of tasks on a node is not known.

**Evidence.** torch 2.13: a second agent on a node stops with `EADDRINUSE`; what `srun` starts is Slurm's manual.
Report: pytorch/pytorch#73656.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.slurmjob import PER_NODE, srun_says_tasks, step_tasks
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script, place_in_text, started_by

META = RuleMeta(
    code="DSL319",
    name="srun-ntasks-vs-launcher",
    kind="launch",
    depends_on_run=True,
    severity=Severity.ERROR,
    summary="srun starts a launcher several times on each node",
    fix="safe",
    references=("https://github.com/pytorch/pytorch/issues/73656", "https://slurm.schedmd.com/srun.html"),
    needs=("srun",),
)

_SCRIPT = {"train.py": "print()\n"}
_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=%s\n"
_RUN = "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HOST0:29500 train.py\n"
_ACCELERATE = "bash -c 'accelerate launch --num_machines 2 --num_processes 8 --machine_rank $SLURM_NODEID train.py'\n"
_FIXED = "srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 "

EXAMPLES = (
    bad(
        "eight tasks a node, each a torchrun",
        {"job.sbatch": _HEAD % 8 + "srun " + _RUN, **_SCRIPT},
        "job.sbatch:4 error",
        {"job.sbatch": _HEAD % 8 + _FIXED + _RUN},
    ),
    bad(
        "a script whose folder is not known, in a container",
        {"job.sbatch": _HEAD % 8 + 'srun --container-image "$IMG" ' + _RUN.replace("train.py", '"$CODE/src/train.py"')},
        "job.sbatch:4 error",
        {
            "job.sbatch": _HEAD % 8
            + _FIXED
            + '--container-image "$IMG" '
            + _RUN.replace("train.py", '"$CODE/src/train.py"')
        },
    ),
    bad(
        "options of srun",
        {"job.sbatch": "srun -N 2 -n 16 " + _RUN, **_SCRIPT},
        "job.sbatch:1 error",
    ),
    bad(
        "accelerate",
        {
            "job.sbatch": _HEAD % 4 + "srun " + _ACCELERATE,
            **_SCRIPT,
        },
        "job.sbatch:4 error",
        {
            "job.sbatch": _HEAD % 4 + _FIXED + _ACCELERATE,
        },
    ),
    bad(
        "a script that srun calls",
        {
            "job.sbatch": _HEAD % 8 + "srun bash node.sh host0\n",
            "node.sh": _RUN.replace("$HOST0", "$1"),
            **_SCRIPT,
        },
        "job.sbatch:4 error",
    ),
    good(
        "a script that srun calls once a node",
        {
            "job.sbatch": _HEAD % 1 + "srun bash node.sh host0\n",
            "node.sh": _RUN.replace("$HOST0", "$1"),
            **_SCRIPT,
        },
    ),
    good("one task a node", {"job.sbatch": _HEAD % 1 + "srun " + _RUN, **_SCRIPT}),
    good(
        "srun says it better",
        {"job.sbatch": _HEAD % 8 + "srun --ntasks=2 --ntasks-per-node=1 " + _RUN + "srun -N 2 -n 2 " + _RUN, **_SCRIPT},
    ),
    good("Slurm starts the processes", {"job.sbatch": _HEAD % 8 + "srun python train.py\n", **_SCRIPT}),
    good(
        "each task is a node for torchrun",
        {
            "job.sbatch": _HEAD % 4
            + "srun "
            + _RUN.replace("--nnodes 2 --nproc_per_node 8", "--nnodes $SLURM_NTASKS --nproc_per_node 1")
            + "srun "
            + _RUN.replace("--nnodes 2 --nproc_per_node 8", "--nnodes 8 --nproc_per_node 2"),
            **_SCRIPT,
        },
    ),
    good("nobody says how many nodes", {"job.sbatch": "#!/bin/bash\n#SBATCH -n 4\nsrun " + _RUN, **_SCRIPT}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Launchers that ``srun`` starts more than once on a node."""
    del context
    for command in started_by(doc):
        if command.outer != "srun" or command.launcher not in PER_NODE or command.hides_options:
            continue
        tasks = step_tasks(command)
        if tasks.per_node.get_or(1) < 2 or _is_task_a_node(command, tasks.total.get_or(0)):
            continue
        count, each = tasks.per_node.get(), command.processes_per_node
        product = f" ({count} x {each.get()} = {count * each.get()} processes)" if each.is_known else ""
        yield META.finding(
            place_in_text(command),
            f"`srun` starts `{command.launcher}` {count} times per node{product}: they claim the same ranks and ports",
            hint="Let `srun` start one task per node: `--ntasks-per-node=1`",
            related=(
                *tasks.per_node.origins,
                *place_in_script(command),
                *each.origins,
            ),
            fix=None if command.called_from else _fix(doc, command),
            severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
            facts={"tasks": count, "launcher": command.launcher},
        )


def _is_task_a_node(command: LaunchCommand, tasks: int) -> bool:
    """Every launcher is a node of its own in what it is told: ``--nnodes $SLURM_NTASKS --nproc_per_node 1``."""
    flag = command.launcher_flag("--nnodes", "--num_machines", "--num_nodes")
    if flag is not None and flag.value is not None and ("NTASKS" in flag.value.raw or "NPROCS" in flag.value.raw):
        return True
    if command.processes_per_node.get_or(2) == 1:
        return True
    if command.nodes.is_unknown:
        raw = flag.value.raw if flag is not None and flag.value is not None else ""
        return re.search(r"SLURM_(?:JOB_NUM_NODES|NNODES)", raw) is None
    return tasks > 0 and command.nodes.get_or(0) == tasks


def _fix(doc: LaunchDoc, command: LaunchCommand) -> Fix | None:
    if srun_says_tasks(command):
        return None
    text, begin = doc.source.text, command.location.span.start
    # The command of ``srun bash -c '...'`` begins inside the string: srun stands before it on its line.
    at = text.rfind("srun", text.rfind("\n", 0, begin) + 1, begin + 4)
    if (
        at < 0
        or not text[at + 4 : at + 5].isspace()
        or (at and not (text[at - 1].isspace() or text[at - 1] in "/;&|("))
    ):
        return None
    place = Span(at + 4, at + 4)
    return Fix(
        "Start one task per node", (Edit(doc.source.path, place, " --ntasks=$SLURM_NNODES --ntasks-per-node=1"),)
    )
