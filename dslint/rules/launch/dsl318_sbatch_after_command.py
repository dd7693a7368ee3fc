"""**What.** A `#SBATCH` line comes after the first command of the script.

**Why it hurts.** `sbatch` stops reading directives at the first line that is neither empty nor a comment; an assignment
or `set -e` is enough. The rest is ignored silently: the job gets the default number of nodes, tasks and GPUs.

**Fix.** Move the lines to the top. The fix does.

**When it stays quiet.** In a heredoc, for lines that are switched off (`##SBATCH`), and after a second `#!`, which
begins another script.

**Evidence.** The manual of sbatch: no directive is processed after the first line that is neither a comment nor empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.batch import FIRST_DIRECTIVE, Directive, directives
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL318",
    name="sbatch-after-command",
    kind="launch",
    severity=Severity.WARNING,
    summary="#SBATCH lines that Slurm ignores because a command comes before them",
    fix="safe",
    no_experiment="only Slurm reads these lines, and the source is its manual",
    references=("https://slurm.schedmd.com/sbatch.html",),
    needs=(f"/{FIRST_DIRECTIVE}/",),
)

_SCRIPT = {"train.py": "print()\n"}
_RIGHT = "#!/bin/bash\n#SBATCH -J train\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nset -e\n\nsrun python train.py\n"

EXAMPLES = (
    bad(
        "`set -e` comes first",
        {
            "job.sbatch": "#!/bin/bash\n#SBATCH -J train\nset -e\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n\n"
            "srun python train.py\n",
            **_SCRIPT,
        },
        "job.sbatch:4",
        {"job.sbatch": _RIGHT},
    ),
    bad(
        "all of them",
        {"job.sbatch": "#!/bin/bash\nN=2\n#SBATCH --nodes=2\nsrun python train.py\n", **_SCRIPT},
        "job.sbatch:3",
        {"job.sbatch": "#!/bin/bash\n#SBATCH --nodes=2\nN=2\nsrun python train.py\n"},
    ),
    good(
        "at the top, between comments",
        {"job.sbatch": _RIGHT.replace("#SBATCH --n", "\n# size\n#SBATCH --n"), **_SCRIPT},
    ),
    good(
        "switched off, and in the text of another script",
        {
            "run.sh": "#!/bin/bash\nN=2\n##SBATCH --nodes=2\ncat > job.sbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=$N\n"
            "srun python train.py\nEOF\nsbatch job.sbatch\n",
            **_SCRIPT,
        },
    ),
    good(
        "a listing",
        {"README.md": "```bash\n$ cat job.slurm\n#SBATCH --nodes=2\nsrun python train.py\n```\n", **_SCRIPT},
    ),
    good(
        "two scripts in one block",
        {
            "README.md": "```bash\n#!/bin/bash\npython prepare.py\n#!/bin/bash\n#SBATCH --nodes=2\n"
            "srun python train.py\n```\n",
            **_SCRIPT,
        },
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Directives behind the first command."""
    del context
    if doc.is_inner:
        return
    found = directives(doc.shell)
    late = [directive for directive in found if not directive.is_read]
    if not late:
        return
    first = next(c for c in doc.shell.root.named_children if c.type != "comment")
    command = doc.shell.span(first)
    if doc.in_docs and re.match(r"(?:cat|less|more|head|vim?|nano|emacs|bat)\b", doc.shell.raw(first)):
        return  # the listing of a file
    line = doc.source.text.find("\n", command.start, command.end)
    end = command.end if line < 0 else line
    others = f" and {len(late) - 1} more" if len(late) > 1 else ""
    yield META.finding(
        doc.source.location(late[0].span),
        f"Slurm ignores `{late[0].text.replace('`', ' ')}`{others}: a command comes before it",
        hint="Move the `#SBATCH` lines to the top",
        related=(
            doc.source.location(Span(command.start, end), "the first command"),
            *(doc.source.location(directive.span, "ignored too") for directive in late[1:]),
        ),
        fix=_fix(doc, found, late),
        severity=Severity.INFO if doc.in_docs else Severity.WARNING,
        facts={"ignored": len(late)},
    )


def _fix(doc: LaunchDoc, found: tuple[Directive, ...], late: list[Directive]) -> Fix | None:
    """Whole lines, behind the last line that Slurm reads, or behind ``#!``."""
    text, base = doc.source.text, doc.shell.base
    if doc.in_docs:
        return None
    read = [directive for directive in found if directive.is_read]
    at = doc.source.line_after(read[-1].span.end) if read else base
    if not read and text.startswith("#!", base):
        at = doc.source.line_after(base)
    lines = [Span(directive.span.start, doc.source.line_after(directive.span.end)) for directive in late]
    moved = "".join(text[line.start : line.end].rstrip("\r\n") + "\n" for line in lines)
    edits = (Edit(doc.source.path, Span(at, at), moved), *(Edit(doc.source.path, line, "") for line in lines))
    return Fix("Move the lines to the top", edits, uncovers=True)
