"""**What.** A batch script of Slurm, PBS or LSF starts its training in the background (`nohup torchrun ... &`, `srun
... &`) and then ends, without `wait`.

**Why it hurts.** The job is over when its script ends, and the queue kills all that the script has started: the
training stops within seconds, often with nothing in its log. `nohup` and `disown` do not help.

**Fix.** Leave the `&` out, or write `wait` as the last line.

**When it stays quiet.** When anything after the command waits, sleeps, reads a log or starts another program, when
the command is in a function, under a condition or in a loop with more after it, and in scripts without
directives.

**Evidence.** Slurm's manual of `sbatch`: the job ends with its script, and the processes of its cgroup are killed.
bash 5.2, run: the script ends while the command before `&` goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.around import in_background
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.otherhosts import uncommented
from dslint.rules.base import RuleMeta, bad, good

_DIRECTIVE = r"/(?m)^#(?:SBATCH|PBS|BSUB)[ \t]/"
_IS_BATCH = re.compile(_DIRECTIVE[1:-1])
META = RuleMeta(
    code="DSL377",
    name="batch-script-ends-first",
    kind="launch",
    severity=Severity.WARNING,
    summary="A batch script ends while its training runs in the background, and the queue kills it",
    references=("https://slurm.schedmd.com/sbatch.html",),
    no_experiment="it takes a queue that ends a job with its script",
    needs=(_DIRECTIVE,),
)

_SCRIPT = {"train.py": "print()\n"}
_HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
_RUN = "torchrun --standalone --nproc_per_node=8 train.py"

EXAMPLES = (
    bad("nohup", {"job.sbatch": _HEAD + f"nohup {_RUN} > train.log 2>&1 &\n", **_SCRIPT}, "job.sbatch:4"),
    bad("srun", {"job.sbatch": _HEAD + f"srun {_RUN} &\necho started $!\n", **_SCRIPT}, "job.sbatch:4"),
    bad("disown", {"job.sbatch": _HEAD + f"{_RUN} &\ndisown\nexit 0\n", **_SCRIPT}, "job.sbatch:4"),
    bad("PBS", {"job.sh": f"#!/bin/bash\n#PBS -l select=1:ngpus=8\n{_RUN} &\n", **_SCRIPT}, "job.sh:3"),
    bad("several", {
        "job.sbatch": _HEAD + "for i in 0 1; do\n  CUDA_VISIBLE_DEVICES=$i python train.py &\ndone\n", **_SCRIPT,
    }, "job.sbatch:5"),
    good("it waits", {"job.sbatch": _HEAD + f"{_RUN} &\nwait\n", **_SCRIPT}),
    good("in the foreground", {"job.sbatch": _HEAD + f"{_RUN}\n", **_SCRIPT}),
    good("a script for a shell", {"run.sh": f"nohup {_RUN} > train.log 2>&1 &\n", **_SCRIPT}),
    good("the log is shown", {"job.sbatch": _HEAD + f"{_RUN} > log &\ntail -f --pid=$! log\n", **_SCRIPT}),
    good("another program goes on", {"job.sbatch": _HEAD + f"nvidia-smi dmon &\n{_RUN}\n", **_SCRIPT}),
)  # fmt: skip

# What may stand behind the last command and takes no time.
_IDLE = re.compile(
    r"(?:echo|printf|date|exit|disown|done|fi|esac|true|:|set|unset|PID\w*=|\w*pid=)(?=[\s;=]|$)|[})]|\w+=\S*$"
)
_WORDS = re.compile(r"[;\n]|&&")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Commands in the background of a script that has nothing else to do."""
    del context
    here = [c for c in doc.commands if c.location.path == doc.source.path and not c.conditions]
    if not here or doc.is_rewritten or doc.in_docs or not _IS_BATCH.search(doc.shell.text):
        return
    last = max(here, key=lambda command: command.location.span.end)
    if not in_background(doc, last) or not _ends(doc, last.location.span.end):
        return
    yield META.finding(
        last.location,
        "the batch script ends while this command runs in the background: the queue ends the job and kills it",
        hint="Delete the `&`, or write `wait` as the last line",
    )


def _ends(doc: LaunchDoc, end: int) -> bool:
    """Behind an offset stands nothing that takes time."""
    # The rest of the command's own line: what it is redirected to.
    behind = uncommented(doc.shell, end - doc.shell.base).partition("&\n")[2]
    steps = (step.strip() for step in _WORDS.split(behind))
    return all(_IDLE.match(step) for step in steps if step) and not re.search(r"\bwait\b", behind)
