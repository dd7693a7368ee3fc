"""**What.** A quantity that its reader takes in another unit: `#SBATCH --time=48:00` (minutes and seconds), `#SBATCH
--mem=64` (megabytes), `docker run --shm-size=8` (bytes).

**Why it hurts.** Slurm ends a job of `--time=48:00` after 48 minutes, in the middle of its training, and one of
`--mem=64` when it has loaded torch. Docker gives the container 8 bytes of shared memory, or refuses the number:
workers of a loader end with a bus error, and NCCL finds no room.

**Fix.** `--time=48:00:00` or `--time=2-00:00:00`, `--mem=64G`, `--shm-size=8g`.

**When it stays quiet.** For times that may well be meant in minutes (`30:00`, `120`), for `--mem=0`, for numbers that
are large enough to be megabytes or bytes, and for variables.

**Evidence.** The manual of `sbatch` (`--time`: "minutes", "minutes:seconds"; `--mem`: "Default units are megabytes")
and of `docker run` (`--shm-size`: "Unit is optional ... bytes").
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL344",
    name="quantity-without-unit",
    kind="launch",
    severity=Severity.WARNING,
    summary="A time or an amount of memory that Slurm or Docker reads in another unit than the one that is meant",
    fix="unsafe",
    references=(
        "https://slurm.schedmd.com/sbatch.html#OPT_time",
        "https://slurm.schedmd.com/sbatch.html#OPT_mem",
        "https://docs.docker.com/reference/cli/docker/container/run/#memory",
    ),
    no_experiment="it takes Slurm and Docker, and the sources are their manuals",
    needs=(r"/(?:--time|--mem|-t[ =]?|--shm-size|--memory|-m)[\w-]*[= ]?\d/",),
)

_SCRIPT = {"train.py": "print()\n"}
_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH %s\nsrun python train.py\n"
_DOCKER = "docker run --gpus all %s team/train:1 python train.py\n"


def _job(directive: str) -> dict[str, str]:
    return {"job.sbatch": _JOB % directive, **_SCRIPT}


EXAMPLES = (
    bad("two days", _job("--time=48:00"), "job.sbatch:3", {"job.sbatch": _JOB % "--time=48:00:00"}),
    bad("a day in one number", _job("-t 24"), "job.sbatch:3"),
    bad("memory of a node", _job("--mem=64"), "job.sbatch:3", {"job.sbatch": _JOB % "--mem=64G"}),
    bad("memory of a GPU", _job("--mem-per-gpu 80"), "job.sbatch:3"),
    bad("the options of sbatch", {"submit.sh": "sbatch --nodes=2 --time=72:00 job.sh\npython train.py\n", **_SCRIPT},
        "submit.sh:1"),
    bad("shared memory", {"run.sh": _DOCKER % "--shm-size=8", **_SCRIPT}, "run.sh:1",
        {"run.sh": _DOCKER % "--shm-size=8g"}),
    bad("on the next line", {"run.sh": _DOCKER % "\\\n  --shm-size 64", **_SCRIPT}, "run.sh:2"),
    good("hours", _job("--time=48:00:00")),
    good("days", _job("--time=2-00:00:00")),
    good("half an hour", _job("--time=30:00")),
    good("two hours", _job("--time=120")),
    good("all memory", _job("--mem=0")),
    good("megabytes", _job("--mem=64000")),
    good("gigabytes", _job("--mem=64G")),
    good("with a unit", {"run.sh": _DOCKER % "--shm-size=8g", **_SCRIPT}),
    good("bytes", {"run.sh": _DOCKER % "--shm-size=8589934592", **_SCRIPT}),
)  # fmt: skip

# The text that Slurm or Docker reads: a directive, or a command with the lines that continue it.
_SLURM = re.compile(
    r"^(?:#SBATCH[ \t][^\n]*|[ \t]*(?:\w+=\S*[ \t]+)*(?:sbatch|srun|salloc)[ \t](?:\\\n|[^\n|;&#])*)", re.M
)
_DOCKER_RUN = re.compile(r"\b(?:docker|podman)[ \t]+(?:container[ \t]+)?run[ \t](?:\\\n|[^\n|;&#])*")
_END = r"(?=[\s\"']|$)"
_TIME = re.compile(rf"(?<=\s)(?:--time[= ]|-t[= ]?)[\"']?(?P<number>24|48|72|96|168)(?P<rest>:00)?{_END}")
_MEMORY = re.compile(rf"(?<=\s)--(?P<name>mem(?:-per-(?:cpu|gpu))?)[= ][\"']?(?P<number>[1-9]\d{{0,2}}){_END}")
_BYTES = re.compile(rf"(?<=\s)(?P<name>--shm-size|--memory)[= ][\"']?(?P<number>[1-9]\d{{0,4}}){_END}")
_PROGRAM = re.compile(r"\s(?:python[\d.]*|torchrun|accelerate|deepspeed|bash|\S+\.(?:sh|py|sbatch|slurm))(?=\s|$)")
_MOST = {"mem": 512, "mem-per-gpu": 256, "mem-per-cpu": 64}


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The quantities of directives and commands."""
    del context
    text = doc.shell.text
    if doc.shell.anchor is not None:
        return
    for part in _SLURM.finditer(text):
        end = _words_end(part[0])
        for found in _TIME.finditer(text, part.start(), part.start() + end):
            shown, number = found[0].strip(), found["number"]
            message = (
                f"`{shown}` is {number} minutes to Slurm, and no hours: the job ends in the middle of its training"
            )
            right = f"{number}:00:00"
            yield _finding(doc, message, found.start("number"), found.end(), right)
        for found in _MEMORY.finditer(text, part.start(), part.start() + end):
            if int(found["number"]) <= _MOST[found["name"]]:
                message = f"`{found[0]}` is {found['number']} megabytes to Slurm: the job is killed when it loads torch"
                yield _finding(doc, message, found.start("number"), found.end("number"), f"{found['number']}G")
    for part in _DOCKER_RUN.finditer(text):
        for found in _BYTES.finditer(text, part.start(), part.end()):
            message = f"`{found[0]}` is {found['number']} bytes to Docker: no process can share memory"
            if found["name"] == "--memory":
                message = f"`{found[0]}` is {found['number']} bytes to Docker, which refuses so little"
            yield _finding(doc, message, found.start("number"), found.end("number"), f"{found['number']}g")


def _words_end(part: str) -> int:
    """Where the options of Slurm end: before the program that is started; those of a directive fill the line."""
    found = None if part.startswith("#SBATCH") else _PROGRAM.search(part)
    return found.start() if found is not None else len(part)


def _finding(doc: LaunchDoc, message: str, start: int, end: int, right: str) -> Finding:
    span = doc.shell.source_span(start, end)
    edit = Edit(doc.source.path, span, right)
    return META.finding(
        doc.source.location(span),
        message,
        hint=f"Write `{right}`",
        fix=Fix(f"Write `{right}`", (edit,), Safety.UNSAFE) if not doc.is_rewritten else None,
        severity=Severity.INFO if doc.in_docs else None,
    )
