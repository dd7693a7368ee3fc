"""**What.** Several jobs of a queue that take a few GPUs each all use one port: a job array (`#SBATCH --array=0-11`) or
a loop around `sbatch`, and in the job `--master_port=29500`, `export MASTER_PORT=29500`, or a launcher that takes 29500
by itself (`deepspeed`).

**Why it hurts.** The queue puts jobs of two GPUs beside each other on one node. The first opens the port; the others
stop with `EADDRINUSE: address already in use`, or join the store of the first and hang. It depends on what else runs,
and looks like chance.

**Fix.** `MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))`, or `torchrun --standalone`.

**When it stays quiet.** For jobs that have a node for themselves (`--exclusive`, `--mem=0`, eight GPUs, several nodes),
that run one after the other (`%1`, `--dependency`), in the job or in the call that submits it; whose GPUs nobody
states, and whose call in a loop names a node, hands over variables or takes options from one; for `accelerate launch`,
which takes a free port where 29500 is in use. Jobs of four GPUs are a note, since a node may have no more, and so are
those of a loop.

**Evidence.** torch 2.13: the second `TCPStore` on a port raises `DistNetworkError`. Slurm's manual (`--exclusive`):
jobs share nodes unless somebody says otherwise. https://github.com/catalyst-team/catalyst/pull/716
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location, Span
from dslint.model.context import Context
from dslint.model.launch.around import LOOPS, nodes_at
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.ports import default_port, ports
from dslint.model.launch.slurmjob import is_alone, machine_gpus, of_queue, tasks_at_once
from dslint.model.launch.submissions import Submission
from dslint.model.shell.effects import assigned_names
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script

if TYPE_CHECKING:
    from tree_sitter import Node

META = RuleMeta(
    code="DSL396",
    name="port-shared-by-jobs",
    kind="launch",
    severity=Severity.WARNING,
    summary="Jobs of an array, or of a loop, take one port, and the queue may put several of them on one node",
    references=("https://slurm.schedmd.com/job_array.html", "https://github.com/catalyst-team/catalyst/pull/716"),
    depends_on_run=True,
    no_experiment="it takes a queue; what a second process on a port does is the experiment of DSL350",
    needs=(r"/#(?:SBATCH|PBS|BSUB)\b/", r"/\bsbatch\b/"),
)

_SCRIPT = {"train.py": "import sys\nprint(sys.argv)\n"}
_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH %s\n#SBATCH --gres=gpu:%s\n%s"
_FIXED = (
    "MASTER_PORT=29500\ntorchrun --nproc_per_node=2 --master_port=$MASTER_PORT train.py --seed $SLURM_ARRAY_TASK_ID\n"
)
_LOOP = "for lr in 1e-4 3e-4 1e-3; do\n    sbatch%s job.sbatch $lr\ndone\n"
_CALLED = "torchrun --nproc_per_node=2 --master_port=%s train.py --lr $1\n"


def _array(text: str, gpus: int = 2, array: str = "--array=0-11") -> dict[str, str]:
    return {"job.sbatch": _JOB % (array, gpus, text), **_SCRIPT}


def _loop(port: str, options: str = "", gpus: int = 2) -> dict[str, str]:
    job = _JOB % ("--time=08:00:00", gpus, _CALLED % port)
    return {"job.sbatch": job, "submit.sh": _LOOP % options, **_SCRIPT}


EXAMPLES = (
    bad("an array", _array(_FIXED), "job.sbatch:6"),
    bad("a short option, and a list", _array(_FIXED, 1, "-a 1,3,5"), "job.sbatch:6"),
    bad("the end point", _array("srun torchrun --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:29400"
                                " train.py\n"), "job.sbatch:5"),
    bad("the variable of the group", {
        "job.sbatch": _JOB % ("--array=0-3", 2, "#SBATCH --ntasks-per-node=2\nexport MASTER_ADDR=localhost"
                              " MASTER_PORT=12355\nsrun python train.py\n"), **_SCRIPT,
    }, "job.sbatch:6"),
    bad("the port that deepspeed takes by itself", _array("deepspeed --num_gpus 2 train.py\n"), "job.sbatch:5"),
    bad("four GPUs", _array(_FIXED, 4), "job.sbatch:6 info"),
    bad("PBS", {"job.pbs": "#!/bin/bash\n#PBS -J 0-9\n#PBS -l select=1:ngpus=1\n" + _FIXED, **_SCRIPT,
                "run.sh": "qsub job.pbs\n"}, "job.pbs:5"),
    bad("a loop", _loop("29500"), "submit.sh:2 info"),
    bad("an array by the call", {**_array(_FIXED, 2, "--time=1"), "submit.sh": "sbatch --array=0-7 job.sbatch\n"},
        "submit.sh:1"),
    bad("an array by the call, in a function", {
        **_array(_FIXED, 2, "--time=1"), "submit.sh": "go() {\n  sbatch -a 0-7%4 job.sbatch --seed $1\n}\ngo 3\n",
    }, "submit.sh:2"),
    good("alone by the call", {**_array(_FIXED), "submit.sh": "sbatch --exclusive job.sbatch\n"}),
    good("alone by the call, whose number is kept", {
        **_array(_FIXED), "submit.sh": "id=$(sbatch --parsable --exclusive job.sbatch)\n"}),
    good("one after the other by the call", {**_array(_FIXED), "submit.sh": "sbatch --array=0-5%1 job.sbatch\n"}),
    good("a net of its own", _array("apptainer exec --nv --net --network=bridge a.sif torchrun --nproc_per_node=2"
                                    " --master_port=29500 train.py\n")),
    good("accelerate takes another one", _array("accelerate launch --multi_gpu --num_machines 1 --num_processes 2"
                                                " train.py\n")),
    good("one of its own", _array(_FIXED.replace("29500", "$((20000 + SLURM_JOB_ID % 20000))"))),
    good("a free one", _array("torchrun --standalone --nproc_per_node=2 train.py\n")),
    good("a whole node", _array(_FIXED.replace("node=2", "node=8"), 8)),
    good("nobody else", _array("#SBATCH --exclusive\n" + _FIXED)),
    good("one after the other", _array(_FIXED, 2, "--array=0-11%1")),
    good("a port for each task", _array("case $SLURM_ARRAY_TASK_ID in\n0) P=29501 ;;\n1) P=29502 ;;\nesac\n"
                                       + _FIXED.replace("$MASTER_PORT", "$P"))),
    good("an array of one", _array(_FIXED, 2, "--array=0-0")),
    good("a host of its own", {"job.pbs": "#!/bin/bash\n#PBS -J 0-9\n#PBS -l select=1:ngpus=2 -l place=scatter:excl\n"
                               + _FIXED, **_SCRIPT, "run.sh": "qsub job.pbs\n"}),
    good("one job", _array(_FIXED, 2, "--array=3")),
    good("several nodes", {"job.sbatch": (_JOB % ("--array=0-3", 2, "srun " + _FIXED)).replace("nodes=1", "nodes=2"),
                           **_SCRIPT}, select="DSL396"),
    good("a loop with one for each", _loop("$((29500 + RANDOM % 1000))")),
    good("a chain of jobs", _loop("29500", " --dependency=singleton")),
)  # fmt: skip

# `accelerate launch` takes another port by itself where one machine's is in use.
_LAUNCHERS = ("torchrun", "deepspeed", "srun")
_MAY_FILL, _FILLS = 4, 8


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Fixed ports in jobs that may share a node."""
    del context
    if doc.in_docs or doc.is_rewritten:
        return
    # The calls that hand this script to a queue, where there are some, say how many tasks it has.
    is_said = any(is_alone(call.facts) or not of_queue(call.facts, "ARRAY").is_absent for call in doc.submitted_as)
    for command in doc.commands if not is_said else ():
        array = tasks_at_once(command.env)
        yield from _told(command, array.labelled("several jobs")) if array is not None else ()
    for call in doc.submissions:
        array, loop = tasks_at_once(call.facts), _loop_of(doc, call)
        jobs = [command for command in doc.called if command.called_from[0] == call.name]
        for command in jobs if not is_alone(call.facts) else ():
            own = tasks_at_once(command.env) if array is not None else None
            around = own.labelled("several jobs") if own is not None else None if is_alone(command.env) else loop
            found = next(_told(command, around, call.name), None) if around is not None else None
            if found is not None:
                yield replace(found, severity=Severity.INFO) if own is None else found
                break


def _told(command: LaunchCommand, why: Location, at: Location | None = None) -> Iterator[Finding]:
    gpus = machine_gpus(command).get_or(0)
    is_small = 0 < gpus < _FILLS and command.nodes.get_or(2) == 1 and command.launcher in _LAUNCHERS
    port = _port(command)
    if (
        not is_small
        or port is None
        or command.conditions
        or _has_net(command)
        or (command.launcher == "srun" and command.world_size.get_or(1) < 2)
    ):
        return
    number, place = port
    yield META.finding(
        at or place,
        f"jobs like this that share a node all take port {number}: the first one gets it, the others stop or hang",
        hint="Compute the port from the number of the job, or use `torchrun --standalone`",
        related=(why, *place_in_script(command)),
        severity=Severity.INFO if gpus == _MAY_FILL else None,
        facts={"port": number},
    )


def _port(command: LaunchCommand) -> tuple[int, Location] | None:
    """The port that the command takes wherever it runs, and where it stands."""
    for port in ports(command):
        return (port.number, port.location) if port.number else None
    return default_port(command)


def _has_net(command: LaunchCommand) -> bool:
    """A container around the command has ports of its own."""
    words = [word.text or "" for group in command.wrappers for word in group]
    return any(word in ("--net", "--network") or word.startswith(("--net=", "--network=")) for word in words)


def _loop_of(doc: LaunchDoc, call: Submission) -> Location | None:
    """The loop that hands one job after the other to the queue, and lets them run beside each other."""
    nodes = list(nodes_at(doc, call.place))
    loop = next((node for node in nodes if node.type in LOOPS), None)
    if loop is None or loop.type == "while_statement" or call.is_open or call.handed:
        return None
    apart = ("ALONE", "DEPENDENCY", "NODELIST")
    waits = any(flag.name in ("--wait", "-W", "-sync") for flag in call.flags)
    if waits or any(not of_queue(call.facts, name).is_absent for name in apart):
        return None
    sets = assigned_names(doc.shell, loop)
    if sets is None or any("PORT" in name for name in sets) or {"break", "wait"} & set(_programs(doc, loop)):
        return None
    start = doc.shell.span(loop).start
    return doc.source.location(Span(start, start + len(doc.shell.raw(loop).split("\n")[0])), "the loop")


def _programs(doc: LaunchDoc, root: Node) -> Iterator[str]:
    """The names of the commands inside."""
    stack = [root]
    while stack:
        node = stack.pop()
        name = node.child_by_field_name("name") if node.type == "command" else None
        if name is not None:
            yield doc.shell.raw(name)
        stack.extend(node.named_children)
