"""**What.** A batch script with `#SBATCH` lines whose first line is not `#!/bin/bash`: it has none, or a blank line, a
blank or a comment comes first.

**Why it hurts.** `sbatch` refuses it: `This does not look like a batch script. The first line must start with #!
followed by the path to an interpreter.` Started with `bash` instead, the `#SBATCH` lines are comments, and nothing
that they ask for is there.

**Fix.** `#!/bin/bash` as the first line, with nothing before it.

**When it stays quiet.** For scripts that hand themselves to `sbatch` (`sbatch $0`), for templates, and for texts inside
of others.

**Evidence.** Read in Slurm's `src/sbatch/sbatch.c`, not run: `has_shebang` wants `#!` as the first two characters, and
the message is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.batch import directives
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL347",
    name="batch-script-refused",
    kind="launch",
    severity=Severity.WARNING,
    summary="A batch script without `#!` at its very beginning, which `sbatch` refuses",
    fix="safe",
    references=("https://slurm.schedmd.com/sbatch.html",),
    no_experiment="it takes Slurm, and the source is Slurm's own",
    needs=(r"/(?m)^#SBATCH[ \t]/",),
)

_SCRIPT = {"train.py": "print()\n"}
_JOB = "#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\nsrun python train.py\n"

EXAMPLES = (
    bad("no first line", {"job.sbatch": _JOB, **_SCRIPT}, "job.sbatch:1", {"job.sbatch": f"#!/bin/bash\n{_JOB}"}),
    bad("a blank line before it", {"job.sh": f"\n#!/bin/bash\n{_JOB}", **_SCRIPT}, "job.sh:2",
        {"job.sh": f"#!/bin/bash\n{_JOB}"}),
    bad("a comment before it", {"job.slurm": f"# trains on two nodes\n#!/bin/bash\n{_JOB}", **_SCRIPT}, "job.slurm:2"),
    bad("a comment", {"job.sh": f"# trains on two nodes\n{_JOB}", **_SCRIPT}, "job.sh:1"),
    good("bash", {"job.sbatch": f"#!/bin/bash\n{_JOB}", **_SCRIPT}),
    good("another shell with options", {"job.sbatch": f"#!/usr/bin/env -S bash -l\n{_JOB}", **_SCRIPT}),
    good("a text that makes a script", {
        "submit.sh": f"cat > job.sbatch <<EOF\n#!/bin/bash\n{_JOB}EOF\nsbatch job.sbatch\n", **_SCRIPT,
    }),
    good("a directive that is switched off", {"run.sh": "##SBATCH --nodes=2\npython train.py\n", **_SCRIPT}),
    good("a template", {"job.sh": "# {{ header }}\n" + _JOB, **_SCRIPT}),
)  # fmt: skip

_TEMPLATE = re.compile(r"\{[{%]|<%|@\w+@")
_SHEBANG = re.compile(r"^[ \t\ufeff]*#![ \t]*/.*", re.MULTILINE)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The first characters of a file with directives that Slurm would read."""
    del context
    text = doc.source.text
    if doc.in_docs or doc.is_inner or doc.is_rewritten or doc.shell.base or text.startswith("#!"):
        return
    read = [directive for directive in directives(doc.shell) if directive.is_read]
    first = text.lstrip("\ufeff \t\r\n").partition("\n")[0]
    if not read or _TEMPLATE.search(first) or re.search(r"\bsbatch\b[^\n]*\$0", text):
        return
    late = next((m for m in _SHEBANG.finditer(text) if m.start() < read[0].span.start), None)
    if late is not None:
        place = Span(late.start(), late.end())
        message = "`#!` is not the first thing in this file: `sbatch` refuses it as no batch script"
        only_blank = not text[: late.start()].strip()
        begin = late.start() + len(late[0]) - len(late[0].lstrip(" \t\ufeff"))
        fix = Fix("Delete what stands before", (Edit(doc.source.path, Span(0, begin), ""),)) if only_blank else None
    else:
        end = text.find("\n")
        place = Span(0, end if end > 0 else len(text))
        message = "this file has `#SBATCH` lines and does not begin with `#!`: `sbatch` refuses it as no batch script"
        fix = Fix("Write `#!/bin/bash` before it", (Edit(doc.source.path, Span(0, 0), "#!/bin/bash\n"),))
    yield META.finding(
        doc.source.location(place),
        message,
        hint="Begin the file with `#!/bin/bash`",
        related=(doc.source.location(read[0].span, "the first directive"),) if read[0].span != place else (),
        fix=fix,
    )
