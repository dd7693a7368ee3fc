"""**What.** `accelerate launch --multi_gpu --num_processes 1`.

**Why it hurts.** `ValueError: You need to use at least 2 processes to use --multi_gpu`, before anything starts.

**Fix.** Drop `--multi_gpu`, or start more processes.

**When it stays quiet.** Two or more processes, or a number that is not known. Two flags of the kind of `--multi_gpu`
are DSL482.

**Evidence.** accelerate 1.15, `_validate_launch_command`, run with both.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.flagedits import without_flag
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL346",
    name="accelerate-multi-gpu-one-process",
    kind="launch",
    severity=Severity.ERROR,
    summary="`accelerate launch --multi_gpu` with a single process",
    fix="safe",
    references=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py",),
    needs=("--multi_gpu",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "accelerate launch --multi_gpu --num_processes 1 train.py\n"

EXAMPLES = (
    bad("one process", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1", {"run.sh": _RUN.replace(" --multi_gpu", "")}),
    bad("the number comes from a variable", {"run.sh": "N=1\n" + _RUN.replace("1", "$N"), **_SCRIPT}, "run.sh:2"),
    good("two processes", {"run.sh": _RUN.replace("1", "2"), **_SCRIPT}),
    good("one process, without the flag", {"run.sh": _RUN.replace(" --multi_gpu", ""), **_SCRIPT}),
    good("a number that is not known", {"run.sh": _RUN.replace("1", "$N"), **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """`--multi_gpu` for one process."""
    del context
    for command in doc.commands:
        if command.launcher != "accelerate":
            continue
        flag, count = command.launcher_flag("--multi_gpu"), command.launcher_flag("--num_processes")
        if flag is None or count is None or command.world_size.get_or(2) != 1:
            continue
        literal = count.value is not None and count.value.raw == "1"
        yield META.finding(
            flag.location,
            "`--multi_gpu` needs at least 2 processes, but `--num_processes` is 1: accelerate stops with a ValueError",
            hint="Drop `--multi_gpu`, or start more processes",
            related=tuple(place.labelled("1 process") for place in command.world_size.origins[-1:]),
            fix=without_flag(command, flag) if literal else None,
            severity=Severity.WARNING if doc.in_docs else None,
        )
