"""**What.** A launcher is told another number of nodes than the Slurm job or step has on which it is started:
`--nnodes 4` in a job of two nodes, or `srun torchrun --nproc_per_node 8` without `--nnodes` on two nodes. The two
numbers may be in two files: `srun bash run.sh` in the job, and the launcher in `run.sh`.

**Why it hurts.** With more nodes than there are, every agent waits in the rendezvous for nodes that nobody starts,
until it times out. With fewer, the others are left over. Without any number each node trains alone: as many separate
runs as nodes, each on all of the data, and they overwrite each other's checkpoints.

**Fix.** `--nnodes $SLURM_NNODES`, with a rendezvous that all nodes share (`--rdzv_backend c10d --rdzv_endpoint
$HEAD:29500`).

**When it stays quiet.** When a number is not known, when each task counts as a node, when `srun` names the hosts of
the step or several tasks run on a node (DSL319), when options may be hidden, in a batch script that starts something
on other hosts by itself, and for fewer nodes where a test of `SLURM_PROCID` gives one of them something else to do. A
launcher of several nodes that no `srun` starts is DSL356.

**Evidence.** Slurm's manual: `srun` starts its tasks on all nodes of the job unless it is told otherwise. torch 2.13,
run: an agent whose partner is missing waits; two agents that are told of one node each train in a world of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.fact import Fact, absent
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.otherhosts import reaches_other_hosts
from dslint.model.launch.rendezvous import places
from dslint.model.launch.slurmjob import PER_NODE, job_nodes, step_tasks
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script, place_in_text, started_by

META = RuleMeta(
    code="DSL367",
    name="slurm-nodes-vs-launcher",
    kind="launch",
    severity=Severity.ERROR,
    summary="A launcher is told another number of nodes than its Slurm job has",
    depends_on_run=True,
    references=("https://slurm.schedmd.com/srun.html", "https://docs.pytorch.org/docs/stable/elastic/run.html"),
    needs=("srun", "SBATCH_NODES"),
)

_SCRIPT = {"train.py": "print()\n"}
_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
_RUN = "torchrun --nnodes %s --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 train.py\n"
_ALONE = "torchrun --nproc_per_node 8 train.py\n"

EXAMPLES = (
    bad("four nodes in a job of two", {"job.sbatch": _HEAD + "srun " + _RUN % 4, **_SCRIPT}, "job.sbatch:5 error"),
    bad(
        "the launcher is in another file",
        {"job.sbatch": _HEAD + "srun bash run.sh\n", "run.sh": "NNODES=4\n" + _RUN % "$NNODES", **_SCRIPT},
        "job.sbatch:5 error",
    ),
    bad(
        "two of four nodes",
        {"job.sbatch": "srun -N 4 --ntasks-per-node=1 " + _RUN % 2, **_SCRIPT},
        "job.sbatch:1 error",
    ),
    bad("each node trains alone", {"job.sbatch": _HEAD + "srun " + _ALONE, **_SCRIPT}, "job.sbatch:5 warning"),
    bad(
        "each node trains alone with deepspeed",
        {"job.sbatch": _HEAD + "srun bash run.sh\n", "run.sh": "deepspeed --num_gpus 8 train.py\n", **_SCRIPT},
        "job.sbatch:5 warning",
    ),
    bad("the other node stays idle", {"job.sbatch": _HEAD + _ALONE, **_SCRIPT}, "job.sbatch:5 warning"),
    good(
        "the number of Slurm, or the same one",
        {"job.sbatch": _HEAD + "srun " + _RUN % "$SLURM_NNODES" + "srun " + _RUN % 2, **_SCRIPT},
    ),
    good(
        "the same number in another file",
        {"job.sbatch": _HEAD + "srun bash run.sh 2\n", "run.sh": _RUN % "$1", **_SCRIPT},
    ),
    good(
        "a step of one node, and a step on certain hosts",
        {"job.sbatch": _HEAD + "srun -N 1 -n 1 " + _ALONE + "srun -w $HEAD " + _ALONE, **_SCRIPT},
    ),
    good(
        "each task is a node",
        {"job.sbatch": "srun -N 2 -n 4 " + (_RUN % 4).replace("--nproc_per_node 8", "--nproc_per_node 1"), **_SCRIPT},
    ),
    good(
        "the script reaches the other node by itself",
        {"job.sbatch": _HEAD + "ssh $OTHER hostname\n" + _ALONE, **_SCRIPT},
    ),
    good(
        "one of three nodes serves the others",
        {
            "job.sbatch": _HEAD.replace("nodes=2", "nodes=3")
            + "srun bash -c '\n    if [ \"$SLURM_PROCID\" -eq 2 ]; then\n        exec python serve.py\n    fi\n    "
            + _RUN % 2 + "'\n",
            "serve.py": "print()\n",
            **_SCRIPT,
        },
    ),
    good("a hostfile", {"job.sbatch": _HEAD + "deepspeed --hostfile $HOSTS train.py\n", **_SCRIPT}),
)  # fmt: skip

# They say on which hosts of the job the step runs.
_CHOOSES_HOSTS = frozenset(
    {"-w", "--nodelist", "-r", "--relative", "-F", "--nodefile", "-x", "--exclude", "--het_group"}
)
# A test by which some of the tasks do something else: one node serves what the others ask.
_TESTS_TASK = re.compile(r"(?:\[\[?|\(\(|\bcase|\btest)\s[^\n;]*\bSLURM_(?:PROCID|NODEID)\b")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Launchers whose number of nodes is not that of their job or step."""
    del context
    for command in started_by(doc):
        if command.launcher not in PER_NODE or command.may_hide_launcher_flags() or command.hides_options:
            continue
        told = _told(command)
        nodes = _nodes(command, doc)
        if told is None or not nodes.is_known or told in (nodes.get(), step_tasks(command).total.get_or(0)):
            continue
        if 1 < told < nodes.get() and _TESTS_TASK.search(doc.source.text):
            continue
        yield _finding(doc, command, told, nodes)


def _nodes(command: LaunchCommand, doc: LaunchDoc) -> Fact[int]:
    """The nodes on which the command is started, or which its job has where one node alone starts it."""
    if command.outer == "srun":
        tasks = step_tasks(command)
        chooses = any(flag.name in _CHOOSES_HOSTS for flag in command.outer_flags)
        one_each = tasks.per_node.get_or(1) == 1 and tasks.total.get_or(0) >= tasks.nodes.get_or(1)
        return tasks.nodes if one_each and not chooses else absent()
    is_alone = not command.outer and len(doc.commands) == 1 and not doc.called
    if is_alone and command.nodes.get_or(1) == 1 and not reaches_other_hosts(doc.shell):
        return job_nodes(command)
    return absent()


def _told(command: LaunchCommand) -> int | None:
    """The number of nodes of which the launcher knows; ``None`` where other files may say it."""
    if command.launcher != "torchrun":
        elsewhere = ("-H", "--hostfile", "--config_file", "--launcher", "--deepspeed_hostfile")
        if command.launcher_flag(*elsewhere) is not None or (
            command.launcher == "accelerate" and command.nodes.is_absent
        ):
            return None
    return command.nodes.get() if command.nodes.is_known else 1 if command.nodes.is_absent else None


def _finding(doc: LaunchDoc, command: LaunchCommand, told: int, nodes: Fact[int]) -> Finding:
    name = command.launcher
    option = {"torchrun": "--nnodes", "accelerate": "--num_machines"}.get(name)
    severity = Severity.ERROR if told > 1 else Severity.WARNING
    return META.finding(
        place_in_text(command),
        _message(name, told, nodes.get(), bool(command.outer)),
        hint=f"Tell the launcher the nodes of the job: `{option} $SLURM_NNODES`"
        if option
        else "Start it once with a hostfile of the nodes, or use `torchrun --nnodes $SLURM_NNODES`",
        related=(
            *nodes.origins[:1],
            *place_in_script(command),
            *(command.nodes.origins or places(command, "--nnodes", "--num_machines", "--num_nodes")),
        ),
        severity=Severity.WARNING if doc.in_docs else severity,
        facts={"launcher": name, "told": told, "nodes": nodes.get()},
    )


def _message(name: str, told: int, there: int, is_step: bool) -> str:
    if told > there:
        return f"`{name}` waits for {told} nodes, and Slurm starts it on {there}: the rendezvous never completes"
    if told > 1:
        return f"Slurm starts `{name}` on {there} nodes, and each is told of {told}: the others are left over"
    if is_step:
        return f"Slurm starts `{name}` on {there} nodes that do not know of each other: each node trains alone"
    return f"the job has {there} nodes, and `{name}` runs on the first one alone: the rest is idle"
