"""**What.** A `#SBATCH` line holds a variable.

**Why it hurts.** `sbatch` reads these lines itself, before any shell runs: `--nodes=$NUM_NODES` stays the text
`$NUM_NODES`, and the job is refused (`Invalid node count`), or its log file gets a `$` in its name.

**Fix.** Write the value, use Slurm's own patterns (`%j`, `%x`) in file names, or give the option on the command line,
which wins: `sbatch --nodes=$NUM_NODES job.sbatch`.

**When it stays quiet.** In a heredoc, where the shell around may put the value in (`sbatch <<EOF`), in templates
(`{{ nodes }}`), and in the comment at the end of a directive. In documentation it is an info.

**Evidence.** The manual of sbatch: the lines are comments to the shell, and options given to `sbatch` override them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.batch import FIRST_DIRECTIVE, directives
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL317",
    name="sbatch-directive-variable",
    kind="launch",
    severity=Severity.WARNING,
    summary="A variable in an #SBATCH line, which no shell expands",
    no_experiment="only Slurm reads these lines, and the source is its manual",
    references=("https://slurm.schedmd.com/sbatch.html",),
    needs=(f"/{FIRST_DIRECTIVE}/",),
)

_TAIL = "srun python train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "the number of nodes",
        {"job.sbatch": f"#!/bin/bash\n#SBATCH --nodes=$NUM_NODES\n#SBATCH --gpus-per-node=8\n{_TAIL}", **_SCRIPT},
        "job.sbatch:2",
    ),
    bad(
        "a log file",
        {"job.sbatch": f"#!/bin/bash\n#SBATCH -o ${{HOME}}/out.log\n{_TAIL}", **_SCRIPT},
        "job.sbatch:2",
    ),
    bad(
        "in documentation",
        {"README.md": f"```bash\n#!/bin/bash\n#SBATCH --nodes=$N\n{_TAIL}```\n", **_SCRIPT},
        "README.md:3 info",
    ),
    good("patterns of Slurm", {"job.sbatch": f"#!/bin/bash\n#SBATCH -o logs/%x-%j.out\n{_TAIL}", **_SCRIPT}),
    good(
        "the shell around expands it",
        {"run.sh": f"N=4\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=$N\n{_TAIL}EOF\n", **_SCRIPT},
    ),
    good(
        "a comment, a directive that is switched off, and a template",
        {
            "job.sbatch": f"#!/bin/bash\n#SBATCH --nodes=2  # or $N\n##SBATCH --mem=$M\n{_TAIL}",
            "job.sbatch.j2": f"#!/bin/bash\n#SBATCH --nodes={{{{ n }}}}\n{_TAIL}",
            **_SCRIPT,
        },
    ),
)
_EXPANSION = re.compile(r"\$(?:\{[^}]*\}?|\([^)]*\)?|[A-Za-z_]\w*)|`[^`]*`")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Directives that hold a variable."""
    del context
    if doc.is_inner or "{{" in doc.shell.text or doc.source.path.endswith((".j2", ".jinja", ".tmpl", ".template")):
        return
    for directive in directives(doc.shell):
        match = _EXPANSION.search(directive.text)
        if match is None:
            continue
        start = directive.span.start + match.start()
        option = directive.text[: match.start()].split()[-1].rstrip("=")
        named = f"`{option}` gets the text" if option.startswith("-") else "Slurm reads the text"
        text = match[0].replace("`", "'")
        yield META.finding(
            doc.source.location(Span(start, start + len(match[0]))),
            f"no shell expands a `#SBATCH` line: {named} `{text}` unchanged",
            hint="Write the value, or give the option on the command line of `sbatch`",
            severity=Severity.INFO if doc.in_docs else Severity.WARNING,
            facts={"text": text},
        )
