"""**What.** Several jobs of a queue that take a few GPUs each all use one port: a job array (`#SBATCH --array=0-11`) or
a loop around `sbatch`, and in the job `--master_port=29500`, `export MASTER_PORT=29500`, or a launcher that takes 29500
by itself (`deepspeed`, `accelerate launch`).

**Why it hurts.** The queue puts jobs of two GPUs beside each other on one node. The first opens the port; the others
stop with `EADDRINUSE: address already in use`, or join the store of the first and hang. It depends on what else runs,
and looks like chance.

**Fix.** `MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))`, or `torchrun --standalone`.

**When it stays quiet.** For jobs that have a node for themselves (`--exclusive`, `--mem=0`, eight GPUs, several nodes),
that run one after the other (`%1`, `--dependency`), whose GPUs nobody states, and whose call names a node, hands over
variables or takes options from one. Jobs of four GPUs are a note, since a node may have no more, and so are those of a
loop.

**Evidence.** torch 2.13: the second `TCPStore` on a port raises `DistNetworkError`. Slurm's manual (`--exclusive`):
jobs share nodes unless somebody says otherwise. https://github.com/catalyst-team/catalyst/pull/716
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location, Span
from dslint.model.context import Context
from dslint.model.launch.around import LOOPS, nodes_at
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.ports import default_port, ports
from dslint.model.launch.slurmjob import machine_gpus
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script

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
    bad("a loop", _loop("29500"), "submit.sh:2"),
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

_ARRAYS = (
    re.compile(r"^#SBATCH[ \t]+(?:--array[= ]|-a[ \t]*)(?P<tasks>[\d,:-]+)(?P<most>%\d+)?", re.MULTILINE),
    re.compile(r"^#PBS[ \t]+-[Jt][ \t]+(?P<tasks>[\d,:-]+)(?P<most>%\d+)?", re.MULTILINE),
    re.compile(r"^#BSUB[ \t]+-J[ \t]+[\"']?\w+\[(?P<tasks>[\d,:-]+)\](?P<most>%\d+)?", re.MULTILINE),
)
_ALONE = re.compile(
    r"^#(?:SBATCH|PBS|BSUB)\b[^\n]*"
    r"(?:--exclusive(?!=)|--mem[= ]0\b|[:= ,]excl(?:host)?\b|\s-x\b|--dependency[= ]singleton)",
    re.MULTILINE,
)
# One after the other, on a node that the call names, with variables that it hands over, or with options in a variable.
_IN_TURN = re.compile(
    r"--dependency|\s-d[ =]|--wait\b|\s-W\b|--exclusive\b|--nodelist\b|\s-w\b|--export\b|\s-v\s"
    r"|\s[\"']?\$\w+[^/]*\s\S+\.\w+"
)
_LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "srun")
_MAY_FILL, _FILLS = 4, 8


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Fixed ports in jobs that may share a node."""
    del context
    if doc.in_docs or doc.is_rewritten:
        return
    array = _array_of(doc)
    for command in doc.commands if array is not None and not _ALONE.search(doc.shell.text) else ():
        yield from _told(command, array, "jobs of this array")
    told: set[Location] = set()
    for command in doc.called:
        place = command.called_from[0]
        loop = _submits_in_loop(doc, place) if place not in told else None
        found = next(_told(command, loop, "jobs of this loop", place), None) if loop is not None else None
        if found is not None:
            told.add(place)
            yield found


def _told(command: LaunchCommand, why: Location | None, jobs: str, at: Location | None = None) -> Iterator[Finding]:
    gpus = machine_gpus(command).get_or(0)
    is_small = 0 < gpus < _FILLS and command.nodes.get_or(2) == 1 and command.launcher in _LAUNCHERS
    port = _port(command)
    if (
        not is_small
        or port is None
        or command.conditions
        or (command.launcher == "srun" and command.world_size.get_or(1) < 2)
    ):
        return
    number, place = port
    yield META.finding(
        at or place,
        f"{jobs} that share a node all take port {number}: the first one gets it, the others stop or hang",
        hint="Compute the port from the number of the job, or use `torchrun --standalone`",
        related=(*((why,) if why is not None else ()), *place_in_script(command)),
        severity=Severity.INFO if gpus == _MAY_FILL or at is not None else None,
        facts={"port": number},
    )


def _port(command: LaunchCommand) -> tuple[int, Location] | None:
    """The port that the command takes wherever it runs, and where it stands."""
    for port in ports(command):
        return (port.number, port.location) if port.number else None
    return default_port(command)


def _array_of(doc: LaunchDoc) -> Location | None:
    """The directive that makes the job an array whose tasks run beside each other."""
    for pattern in _ARRAYS if doc.shell.anchor is None else ():
        found = pattern.search(doc.shell.text)
        if found is not None:
            is_several = re.fullmatch(r"(\d+)(?:-\1)?(?::\d+)?", found["tasks"]) is None
            span = doc.shell.source_span(found.start(), found.end())
            place = doc.source.location(span, "several jobs")
            return place if is_several and found["most"] != "%1" else None
    return None


def _submits_in_loop(doc: LaunchDoc, place: Location) -> Location | None:
    """The loop in which a call stands that hands a job to the queue and does not wait for it."""
    nodes = list(nodes_at(doc, place))
    command = next((node for node in nodes if node.type == "command"), None)
    loop = next((node for node in nodes if node.type in LOOPS), None)
    if command is None or loop is None:
        return None
    words, turns = doc.shell.raw(command), doc.shell.raw(loop)
    if loop.type == "while_statement" or re.search(r"\bbreak\b|PORT=|\bwait\b", turns):
        return None
    if not re.match(r"(?:\S*/)?(?:sbatch|qsub)\s", words) or _IN_TURN.search(words):
        return None
    start = doc.shell.span(loop).start
    return doc.source.location(Span(start, start + len(doc.shell.raw(loop).split("\n")[0])), "the loop")
