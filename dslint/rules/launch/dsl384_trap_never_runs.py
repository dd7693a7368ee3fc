"""**What.** A batch script asks Slurm for a signal before the time is over (`#SBATCH --signal=USR1@120`) and catches
it with `trap`, to save or to requeue, and the trap does not run: the signal is not sent to the script (no `B:`), or
the script is busy with a command in the foreground.

**Why it hurts.** Without `B:` Slurm signals the steps alone, never the batch shell. With `B:`, bash runs a trap only
when the command in the foreground has ended: after the training, or not at all, for the job is killed first. The job
is neither saved nor requeued.

**Fix.** `#SBATCH --signal=B:USR1@120`, the command with `&` after it, and `wait`: that is interrupted by a signal.

**When it stays quiet.** For traps of other signals, and when the script waits for a command in the background.

**Evidence.** Slurm's manual of `sbatch` (`--signal`: all steps, but not the batch shell itself). bash 5.2, run: a
trap waits for the command in the foreground, and interrupts `wait`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location, Span
from dslint.model.context import Context
from dslint.model.launch.around import in_background
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.batch import directives
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL384",
    name="trap-never-runs",
    kind="launch",
    severity=Severity.WARNING,
    summary="The trap of a batch script does not get the signal that Slurm is asked for",
    references=("https://slurm.schedmd.com/sbatch.html#OPT_signal",),
    no_experiment="it takes a queue that sends the signal; bash was run",
    needs=(r"/(?m)^#SBATCH\s+--signal/",),
)

_SCRIPT = {"train.py": "print()\n"}
_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --signal=%s@120\ntrap 'scontrol requeue $SLURM_JOB_ID' %s\n%s\n"
_RUN = "srun python train.py"

EXAMPLES = (
    bad("sent to the steps alone", {"job.sbatch": _JOB % ("USR1", "USR1", f"{_RUN} &\nwait"), **_SCRIPT},
        "job.sbatch:3"),
    bad("a command in the foreground", {"job.sbatch": _JOB % ("B:USR1", "SIGUSR1", _RUN), **_SCRIPT}, "job.sbatch:5"),
    bad("without srun", {
        "job.sbatch": _JOB % ("B:USR2", "USR2", "torchrun --standalone --nproc_per_node=8 train.py"), **_SCRIPT,
    }, "job.sbatch:5"),
    good("sent to the script, which waits", {"job.sbatch": _JOB % ("B:USR1", "USR1", f"{_RUN} &\nwait"), **_SCRIPT}),
    good("the program catches it", {
        "job.sbatch": f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --signal=USR1@120\n{_RUN}\n", **_SCRIPT,
    }),
    good("another signal", {"job.sbatch": _JOB % ("USR1", "EXIT", _RUN), **_SCRIPT}),
)  # fmt: skip

_SIGNAL = re.compile(r"#SBATCH\s+--signal[=\s]\s*[\"']?(?P<to>[A-Za-z]*:)?(?:SIG)?(?P<name>[A-Z]+\d?|\d+)(?:@\d+)?")
_TRAP = r"^[ \t]*trap[ \t]+(?P<what>'[^']*'|\"[^\"]*\"|\w+)(?:[ \t]+\S+)*?[ \t]+(?:SIG)?%s\b"


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Traps that a signal does not reach, or not in time."""
    del context
    for directive in directives(doc.shell):
        found = _SIGNAL.match(directive.text)
        trap = re.search(_TRAP % found["name"], doc.shell.text, re.MULTILINE) if found is not None else None
        if found is None or trap is None or trap["what"] in ("''", '""'):
            continue
        place = doc.source.location(Span(trap.start() + doc.shell.base, trap.end() + doc.shell.base), "the trap")
        if "B" not in (found["to"] or "").upper():
            yield META.finding(
                doc.source.location(directive.span),
                f"Slurm sends {found['name']} to the steps of the job and not to this script, whose trap waits for it",
                hint=f"Write `B:{found['name']}`",
                related=(place,),
                severity=Severity.INFO if doc.in_docs else None,
            )
        else:
            yield from _in_foreground(doc, place, found["name"])


def _in_foreground(doc: LaunchDoc, trap: Location, name: str) -> Iterator[Finding]:
    """The command that keeps bash from its trap."""
    behind = [c for c in doc.commands if c.location.path == trap.path and c.location.span.start > trap.span.end]
    if not behind or re.search(r"^[ \t]*wait\b", doc.shell.text, re.MULTILINE):
        return
    last: LaunchCommand = behind[-1]
    if in_background(doc, last) or last.conditions:
        return
    yield META.finding(
        last.location,
        f"bash runs its trap for {name} only when this command has ended: it comes too late",
        hint="Put `&` after the command, and `wait` on the next line",
        related=(trap,),
        severity=Severity.INFO if doc.in_docs else None,
    )
