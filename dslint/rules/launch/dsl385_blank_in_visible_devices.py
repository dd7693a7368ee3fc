"""**What.** A list of devices with a blank in it, without quotes: `CUDA_VISIBLE_DEVICES=0, 1 torchrun ...`, `export
CUDA_VISIBLE_DEVICES=0, 1`.

**Why it hurts.** For bash the value ends at the blank. In front of a command the next device is the name of the
program (`1: command not found`), and nothing is started. After `export` the list is `0,`: one device, and the
launcher starts processes for GPUs that they do not see.

**Fix.** `CUDA_VISIBLE_DEVICES=0,1`.

**When it stays quiet.** In quotes.

**Evidence.** bash 5.2, run: exit code 127; `export` says `1': not a valid identifier` and keeps `0,`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL385",
    name="blank-in-visible-devices",
    kind="launch",
    severity=Severity.WARNING,
    summary="A blank in the list of devices ends it: the rest is a command, or lost",
    fix="safe",
    references=("https://www.gnu.org/software/bash/manual/bash.html#Simple-Commands",),
    no_experiment="bash says it at once",
    needs=(r"/VISIBLE_DEVICES=\d[\d,]*,?[ \t]+,?\d/",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --standalone --nproc_per_node=2 train.py\n"

EXAMPLES = (
    bad("in front of the command", {"run.sh": "CUDA_VISIBLE_DEVICES=0, 1 " + _RUN, **_SCRIPT}, "run.sh:1",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 " + _RUN}),
    bad("exported", {"run.sh": "export CUDA_VISIBLE_DEVICES=0, 1\n" + _RUN, **_SCRIPT}, "run.sh:1",
        {"run.sh": "export CUDA_VISIBLE_DEVICES=0,1\n" + _RUN}),
    bad("four of them", {"run.sh": "export CUDA_VISIBLE_DEVICES=0, 1, 2, 3\n" + _RUN, **_SCRIPT}, "run.sh:1",
        {"run.sh": "export CUDA_VISIBLE_DEVICES=0,1,2,3\n" + _RUN}),
    good("a list", {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 " + _RUN, **_SCRIPT}),
    good("in quotes", {"run.sh": 'export CUDA_VISIBLE_DEVICES="0, 1"\n' + _RUN, **_SCRIPT}),
    good("one device and a program", {"run.sh": "CUDA_VISIBLE_DEVICES=0 7z x data.7z\n" + _RUN, **_SCRIPT}),
)  # fmt: skip

_LIST = re.compile(r"\b(?:CUDA|HIP|ROCR|ASCEND_RT)_VISIBLE_DEVICES=(?P<list>\d+(?:,\d+)*(?:,[ \t]+\d+|[ \t]+,[ \t]*\d+)"
                   r"(?:[ \t]*,[ \t]*\d+)*)(?=[ \t;\n]|$)")  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Lists of devices that end at a blank."""
    del context
    shell = doc.shell
    for found in _LIST.finditer(shell.text) if shell.anchor is None and not doc.is_inner else ():
        if any(note.start - shell.base <= found.start() < note.end - shell.base for note in shell.comments):
            continue
        meant = re.sub(r"[ \t]", "", found["list"])
        line = shell.text[shell.text.rfind("\n", 0, found.start()) + 1 : found.start()]
        effect = "the list ends there" if "export" in line else "bash takes the next device for a command"
        span = Span(found.start("list") + shell.base, found.end("list") + shell.base)
        yield META.finding(
            doc.source.location(span),
            f"a blank in the list of devices: {effect}",
            hint=f"Write `{meant}`",
            fix=Fix(f"Write `{meant}`", (Edit(doc.source.path, span, meant),)),
        )
