"""**What.** `xtuner train` runs on several nodes, under `srun` or under `mpirun` without `--launcher`.

**Why it hurts.** With launcher `none` mmengine does not initialise the process group. Every process then prepares the
whole dataset alone, reaches `deepspeed.initialize` at another time, and the first collective times out after 1800
seconds. Under `srun` each task is such a process. With `NNODES` and `NPROC_PER_NODE` the command line tool appends
`--launcher pytorch` itself; that it was missing is what the report below ends with, and the same words after
`torchrun` hang.

**Fix.** Say it: `--launcher slurm` when `srun` starts one task a GPU, `--launcher pytorch` with `NPROC_PER_NODE`,
`--launcher mpi` under `mpirun`.

**When it stays quiet.** On one node without `srun` (the command line tool does the right thing), with a single task,
when arguments that cannot be read may hold the option (`$EXTRA_ARGS`, `"$@"`; a `$CONFIG` is the config), and when
nobody speaks of several nodes.

**Evidence.** InternLM/xtuner#438 (the traceback shows this path); XTuner `entry_point.py`, `cli`, of every release.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.xtuner import lacks_launcher, multi_node_origins, starts_torchrun, trains
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL352",
    name="xtuner-launcher-missing",
    kind="launch",
    severity=Severity.WARNING,
    summary="XTuner on several nodes or under srun without `--launcher`",
    references=("https://github.com/InternLM/xtuner/issues/438",),
    needs=("xtuner",),
)

_ENV = "export XTUNER_DATASET_TIMEOUT=120 PORT=29600 ADDR=10.0.0.1\n"

EXAMPLES = (
    bad(
        "eight nodes and no launcher",
        {"run.sh": _ENV + "NPROC_PER_NODE=8 NNODES=8 NODE_RANK=$1 xtuner train c.py --deepspeed deepspeed_zero2\n"},
        "run.sh:2 warning",
    ),
    bad(
        "sixteen tasks of srun, each trains alone",
        {"job.sbatch": "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\n" + _ENV + "srun xtuner train c.py\n"},
        "job.sbatch:5 error",
    ),
    bad(
        "the config is an argument of the script",
        {"run.sh": _ENV + "CONFIG=$1\nsrun -n 16 xtuner train ${CONFIG} --deepspeed deepspeed_zero2\n"},
        "run.sh:3 error",
    ),
    bad("`none` is no launcher", {"run.sh": "srun -n 16 xtuner train c.py --launcher none\n"}, "run.sh:1 error"),
    bad("srun, nobody says how many tasks", {"run.sh": "srun ${SRUN_ARGS} xtuner train c.py\n"}, "run.sh:1 warning"),
    bad(
        "in documentation",
        {"README.md": f"# Train\n\n```bash\n{_ENV}NPROC_PER_NODE=8 NNODES=8 NODE_RANK=0 xtuner train c.py\n```\n"},
        "README.md:5 warning",
    ),
    bad(
        "a variable says how many nodes there are: nobody writes one for a single node",
        {"run.sh": "NPROC_PER_NODE=8 NNODES=$WORLD_SIZE NODE_RANK=$RANK xtuner train c.py\n"},
        "run.sh:1 warning",
    ),
    bad(
        "a batch job that starts the tool once on each node",
        {
            "job.sbatch": "#!/bin/bash\n#SBATCH --nodes=8\n#SBATCH --ntasks-per-node=1\n"
            + _ENV
            + "export NPROC_PER_NODE=8 NNODES=$SLURM_NNODES\nsrun bash -c 'NODE_RANK=$SLURM_NODEID xtuner train c.py'\n"
        },
        "job.sbatch:6 warning",
    ),
    good("one node", {"run.sh": "NPROC_PER_NODE=8 xtuner train c.py --deepspeed deepspeed_zero2\n"}),
    good(
        "the launcher is named",
        {
            "run.sh": _ENV + "NPROC_PER_NODE=8 NNODES=8 NODE_RANK=$1 xtuner train c.py --launcher pytorch\n"
            "srun -N 2 -n 16 xtuner train c.py --launcher=slurm\n"
        },
    ),
    good(
        "arguments that cannot be read", {"run.sh": _ENV + "NNODES=8 NPROC_PER_NODE=8 xtuner train c.py $EXTRA_ARGS\n"}
    ),
    good(
        "one node unless somebody says otherwise",
        {"run.sh": "NPROC_PER_NODE=8 NNODES=${NNODES:-1} xtuner train c.py\n"},
    ),
    good("one task", {"run.sh": "srun -N 1 -n 1 --gres=gpu:1 xtuner train c.py\n"}),
)


_OPTIONS = {"srun": "slurm", "mpirun": "mpi"}


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Commands of XTuner that leave the launcher to chance."""
    del context
    for command in doc.commands:
        if not trains(command) or not lacks_launcher(command):
            continue
        alone = command.outer in _OPTIONS and not starts_torchrun(command)
        finding = _under_scheduler(command) if alone else _nodes(command)
        if finding is not None:
            yield finding


def _under_scheduler(command: LaunchCommand) -> Finding | None:
    tasks = command.world_size
    if tasks.is_known and tasks.get() == 1:
        return None
    how_many = f"{tasks.get()} tasks" if tasks.is_known else "tasks"
    severe = tasks.is_known and not command.in_docs
    return META.finding(
        command.location,
        f"`{command.outer}` starts {how_many} of `xtuner train` {_without(command)}: each trains alone until a"
        " collective"
        " times out",
        hint=f"Add `--launcher {_OPTIONS[command.outer]}`",
        related=tasks.origins,
        severity=Severity.ERROR if severe else Severity.WARNING,
        facts={"by": command.outer, "world": tasks.get_or(None)},
    )


def _without(command: LaunchCommand) -> str:
    return "without `--launcher`" if command.script_flag("--launcher") is None else "with `--launcher none`"


def _nodes(command: LaunchCommand) -> Finding | None:
    nodes = command.nodes
    if nodes.get_or(2) < 2 or not (nodes.is_known or command.variable("NNODES").is_unknown):
        return None
    many = f"{nodes.get()} nodes" if nodes.is_known else "several nodes"
    return META.finding(
        command.location,
        f"`xtuner train` on {many} {_without(command)}: unless its own torchrun adds it, the nodes form no group",
        hint="Add `--launcher pytorch`",
        related=multi_node_origins(command),
        facts={"by": "torchrun", "nodes": nodes.get_or(None)},
    )
