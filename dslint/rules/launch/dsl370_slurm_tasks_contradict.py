"""A job of Slurm asks for another number of tasks than its nodes times the tasks of each node.

**What.** `#SBATCH --nodes=2`, `--ntasks-per-node=8` and `--ntasks=8` (or `-n 1`) are in one job, and `srun` starts
the training without a number of its own.

**Why it hurts.** `--ntasks` wins, and `--ntasks-per-node` becomes the most that a node may have: `srun` starts 8
processes, on one node or spread over both, and the script believes in 16 ranks. Those that are there wait for the
others until the timeout; or the run trains on a part of the GPUs that the job pays for.

**Fix.** Leave `--ntasks` out: nodes times tasks of a node is what Slurm starts then.

**When it stays quiet.** A number that is not known; numbers that agree; a command without `srun`; an `srun` with
`--ntasks` or `--ntasks-per-node` of its own.

**Evidence.** The manual of sbatch, `--ntasks-per-node`: "If used with the --ntasks option, the --ntasks option will
take precedence and the --ntasks-per-node will be treated as a maximum count of tasks per node."
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.core.words import counted
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.launchers.base import env_count
from dslint.model.launch.slurmjob import srun_says_tasks
from dslint.rules.base import RuleMeta, bad, good

_KEYS = ("SBATCH_NODES", "SBATCH_NTASKS_PER_NODE", "SBATCH_NTASKS")
META = RuleMeta(
    code="DSL370",
    name="slurm-tasks-contradict",
    kind="launch",
    severity=Severity.WARNING,
    summary="`--ntasks` of a Slurm job is not its nodes times its tasks per node",
    no_experiment="it takes Slurm, whose manual says what happens",
    references=(
        "https://slurm.schedmd.com/sbatch.html#OPT_ntasks-per-node",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/20391",
    ),
    needs=("SBATCH_NTASKS",),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The first command that ``srun`` starts with numbers that contradict each other."""
    del context
    for command in doc.commands:
        if "srun" not in (command.launcher, command.outer) or srun_says_tasks(command):
            continue
        if any(flag.name in ("-N", "--nodes") for flag in (*command.outer_flags, *command.launcher_flags)):
            continue
        numbers = [env_count(command.env, key) for key in _KEYS]
        nodes, each, total = (number.get_or(0) for number in numbers)
        if nodes and each and total and nodes * each != total:
            yield _finding(doc, command, numbers)
            return


def _finding(doc: LaunchDoc, command: LaunchCommand, numbers: list[Fact[int]]) -> Finding:
    nodes, each, total = (number.get() for number in numbers)
    places = [place for number in reversed(numbers) for place in number.origins]
    return META.finding(
        places[0] if places else command.location,
        f"{counted(nodes, 'node')} with {counted(each, 'task')} each are {counted(nodes * each, 'task')}, "
        f"and `--ntasks={total}` wins: `srun` starts {total}",
        hint=f"Leave `--ntasks` out, or write {nodes * each}",
        related=(*places[1:], command.location.labelled("started here")),
        severity=Severity.INFO if doc.in_docs else None,
        facts={"tasks": total, "nodes": nodes},
    )


_SCRIPT = {"train.py": "print()\n"}
_JOB = "#!/bin/bash\n#SBATCH --nodes=%s\n#SBATCH --ntasks-per-node=%s\n#SBATCH --ntasks=%s\nsrun %spython train.py\n"

EXAMPLES = (
    bad("one task of two", {"job.sh": _JOB % (1, 2, 1, ""), **_SCRIPT}, "job.sh:4 warning"),
    bad("the tasks of one node for two", {"job.sh": _JOB % (2, 8, 8, "--label "), **_SCRIPT}, "job.sh:4 warning"),
    bad(
        "short options, and a launcher on each node",
        {
            "job.sh": "#!/bin/bash\n#SBATCH -N 4\n#SBATCH -n 1\n#SBATCH --ntasks-per-node 1\n"
            "srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HOST0:29500 train.py\n",
            **_SCRIPT,
        },
        "job.sh:3 warning",
    ),
    good("the product", {"job.sh": _JOB % (2, 8, 16, ""), **_SCRIPT}),
    good("srun says it itself", {"job.sh": _JOB % (2, 8, 8, "--ntasks 16 "), **_SCRIPT}),
    good("a part of the nodes", {"job.sh": _JOB % (2, 8, 8, "-N 1 "), **_SCRIPT}),
    good("a range of nodes", {"job.sh": _JOB % ("2-4", 8, 8, ""), **_SCRIPT}),
    good("no srun", {"job.sh": _JOB.replace("srun ", "") % (1, 2, 1, ""), **_SCRIPT}),
)
