"""**What.** A launcher writes into a pipe (`torchrun ... 2>&1 | tee log`), and `pipefail` is not set.

**Why it hurts.** The exit code of a pipe is that of its last program. A training that fails ends with 0: the batch
system says COMPLETED, the workflow is green, the next stage starts from a checkpoint that does not exist.

**Fix.** `set -o pipefail` at the top, or look at `${PIPESTATUS[0]}`.

**When it stays quiet.** In documentation, with `pipefail` or `PIPESTATUS` anywhere in the text, and in a step of a
GitHub workflow with `shell: bash`, which means `bash -eo pipefail` (without `shell:` it is `bash -e`). In a batch
script (`#SBATCH`) it is a warning.

**Evidence.** bash 5.2, with a recorder in the place of the launcher that ends with 3: the script ends with 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.around import piped_into
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL342",
    name="tee-hides-exit",
    kind="launch",
    severity=Severity.INFO,
    summary="A pipe hides the exit code of the launcher",
    fix="safe",
    references=("https://www.gnu.org/software/bash/manual/html_node/Pipelines.html",),
    optional=True,
    needs=(r"/\|/",),
)

_RUN = "torchrun --nproc_per_node 8 train.py 2>&1 | tee train.log\n"
_JOB = "#!/bin/bash\n#SBATCH --ntasks=1\n\n" + _RUN
_CI = "on: push\njobs:\n  train:\n    steps:\n    - run: " + _RUN
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("the log hides a failure", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1 info",
        {"run.sh": "set -o pipefail\n" + _RUN}),
    bad("Slurm takes the job for completed", {"job.sh": _JOB, **_SCRIPT}, "job.sh:4 warning",
        {"job.sh": _JOB.replace("\n\n", "\nset -o pipefail\n\n")}),
    good("pipefail is set", {"run.sh": "set -euo pipefail\n" + _RUN, **_SCRIPT}),
    good("the script looks at the codes", {"run.sh": _RUN + "exit ${PIPESTATUS[0]}\n", **_SCRIPT}),
    good("a redirection", {"run.sh": _RUN.replace("2>&1 | tee", ">"), **_SCRIPT}),
    good("the launcher is the last program", {"run.sh": "yes | " + _RUN.partition(" 2>")[0] + "\n", **_SCRIPT}),
    bad("a step of a workflow", {".github/workflows/ci.yml": _CI, **_SCRIPT}, ".github/workflows/ci.yml:5 info"),
    good("a step with `shell: bash`", {
        ".github/workflows/ci.yml": _CI.replace("    - run", "    - shell: bash\n      run"), **_SCRIPT,
    }),
    good("all steps of a job", {
        ".github/workflows/ci.yml": _CI.replace("    steps", "    defaults: {run: {shell: bash}}\n    steps"),
        **_SCRIPT,
    }),
    good("an example in documentation", {"README.md": f"```bash\n{_RUN}```\n", **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The first launch command of a file whose exit code a pipe hides."""
    del context
    if doc.in_docs or doc.has_pipefail or re.search(r"pipefail|PIPESTATUS", doc.shell.text or doc.source.text):
        return
    is_batch = re.search(r"^#SBATCH", doc.source.text, re.MULTILINE) is not None
    for command in doc.commands:
        into = piped_into(doc, command)
        if into:
            yield META.finding(
                command.location,
                f"`{into}` in the pipe hides the exit code of `{command.program}`: a failed training exits with 0",
                hint="Write `set -o pipefail` at the top",
                fix=_fix(doc),
                severity=Severity.WARNING if is_batch else None,
            )
            return


def _fix(doc: LaunchDoc) -> Fix | None:
    """Below the comments at the top, where ``#SBATCH`` lines must stay."""
    text = doc.source.text
    if doc.shell.base or re.match(r"#!.*[/ ](?:da|k)?sh\b(?<!bash)", text) or not doc.source.path.endswith(".sh"):
        return None
    head = re.match(r"(?:[ \t]*#[^\n]*\n)*", text)
    at = head.end() if head is not None else 0
    return Fix("Set `pipefail`", (Edit(doc.source.path, Span(at, at), "set -o pipefail\n"),))
