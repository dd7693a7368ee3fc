"""**What.** A batch script of Slurm names a folder for its output (`#SBATCH --output=logs/%j.out`) and makes it
itself (`mkdir -p logs`).

**Why it hurts.** Slurm opens the file before the first line of the script runs. Where the folder does not exist yet,
as in a fresh clone, the job fails at once: without output, and with no reason given.

**Fix.** Make the folder before `sbatch` is called: keep it in the repository (`logs/.gitkeep`), or `mkdir -p logs &&
sbatch job.sbatch`.

**When it stays quiet.** For folders that the script does not make, absolute paths, paths with `%`, and where the
script hands itself to `sbatch`.

**Evidence.** Slurm's manual of `sbatch` (`--output`): the file is opened when the job starts; its folder is not made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.batch import directives
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL383",
    name="log-folder-made-too-late",
    kind="launch",
    severity=Severity.WARNING,
    summary="A batch script makes the folder of its own output, which Slurm needs before the script runs",
    references=("https://slurm.schedmd.com/sbatch.html#OPT_output",),
    no_experiment="it takes a queue, and the source is Slurm's manual",
    needs=(r"/(?m)^#SBATCH\s+(?:-o|-e|--output|--error)/",),
)

_SCRIPT = {"train.py": "print()\n"}
_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH %s\n%s\nsrun python train.py\n"

EXAMPLES = (
    bad("logs", {"job.sbatch": _JOB % ("--output=logs/%j.out", "mkdir -p logs"), **_SCRIPT}, "job.sbatch:3"),
    bad("a folder in a folder", {
        "job.sbatch": _JOB % ("-o out/slurm/%x-%j.log", 'mkdir -p "out/slurm" checkpoints'), **_SCRIPT,
    }, "job.sbatch:3"),
    bad("errors", {"job.sbatch": _JOB % ("--error ./logs/%j.err", "mkdir logs || true"), **_SCRIPT}, "job.sbatch:3"),
    good("made elsewhere", {"job.sbatch": _JOB % ("--output=logs/%j.out", "mkdir -p checkpoints"), **_SCRIPT}),
    good("no folder", {"job.sbatch": _JOB % ("--output=%j.out", "mkdir -p logs"), **_SCRIPT}),
    good("a folder that exists", {"job.sbatch": _JOB % ("--output=/scratch/logs/%j.out", "mkdir -p logs"), **_SCRIPT}),
    good("the script hands itself over", {
        "job.sbatch": _JOB % ("--output=logs/%j.out", 'mkdir -p logs\n[ -n "$SLURM_JOB_ID" ] || exec sbatch "$0"'),
        **_SCRIPT,
    }),
)  # fmt: skip

_OUTPUT = re.compile(r"#SBATCH\s+(?:-o\s*|-e\s*|--output[=\s]\s*|--error[=\s]\s*)[\"']?(?P<folder>[^\s\"'%]*)/[^/\s]*")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Folders of outputs that only the script itself makes."""
    del context
    if re.search(r"\bsbatch\b", doc.shell.text):
        return
    told: set[str] = set()
    for directive in directives(doc.shell):
        found = _OUTPUT.match(directive.text)
        if found is None or not directive.is_read or found["folder"].startswith(("/", "~", "$")):
            continue
        folder = found["folder"].removeprefix("./")
        made = re.search(_MAKES % re.escape(folder), doc.shell.text, re.MULTILINE) if folder else None
        if made is None or folder in told:
            continue
        told.add(folder)
        place = Span(made.start("command") + doc.shell.base, made.end() + doc.shell.base)
        yield META.finding(
            doc.source.location(directive.span),
            f"Slurm opens this file before the script makes `{folder}`: the first job fails, and says nothing",
            hint=f"Make `{folder}` before `sbatch` is called, or keep it in the repository",
            related=(doc.source.location(place, "made here, too late"),),
            severity=Severity.INFO if doc.in_docs else None,
        )


_MAKES = r"^(?!\s*#)[^\n]*?(?P<command>\bmkdir\s(?:[^\n;&|#]*[\s\"'])?(?:\./)?%s/?)(?=[\s\"';&|]|$)"
