"""**What.** A script calls `conda activate` (or `mamba activate`) and does nothing before that makes it work: no
`source .../conda.sh`, no `eval "$(conda shell.bash hook)"`, no login shell.

**Why it hurts.** `conda activate` is a function that `conda init` puts into the start-up file of interactive shells; a
script, a batch job and `bash -c` have none. `CondaError: Run 'conda init' before 'conda activate'`, or `Your shell has
not been properly configured`: the script goes on in the environment that was there before, with another torch or none.

**Fix.** `source "$(conda info --base)/etc/profile.d/conda.sh"` before it, or `conda run -n NAME torchrun ...`.

**When it stays quiet.** After `source` of any file, `module load` and `ml`, with `#!/bin/bash -l` or `-i`, for
functions named `conda`, in documentation, where people type it, and in Dockerfiles.

**Evidence.** Read in conda's source, not run: the program `conda` itself knows `activate` only to raise this error
(`cli/main_mock_activate.py`); the function of the shell is in `conda.sh`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL392",
    name="conda-not-initialised",
    kind="launch",
    severity=Severity.WARNING,
    summary="A script calls `conda activate`, which works in interactive shells only",
    references=("https://docs.conda.io/projects/conda/en/latest/dev-guide/deep-dives/activation.html",),
    no_experiment="it takes conda, and its message says it",
    needs=(r"/(?m)^[^#\n]*\b(?:conda|mamba|micromamba)[ \t]+activate\b/",),
)

_SCRIPT = {"train.py": "print()\n"}
_JOB = "#!/bin/bash%s\n#SBATCH --gpus-per-node=4\n%sconda activate train\nsrun python train.py\n"


def _job(before: str = "", options: str = "") -> dict[str, str]:
    return {"job.sbatch": _JOB % (options, before), **_SCRIPT}


EXAMPLES = (
    bad("a batch script", _job(), "job.sbatch:3"),
    bad("a script, behind &&", {"run.sh": "cd /work && conda activate a\npython train.py\n", **_SCRIPT}, "run.sh:1"),
    bad("mamba", {"run.sh": 'mamba activate "$ENV"\ntorchrun train.py\n', **_SCRIPT}, "run.sh:1"),
    good("conda.sh", _job("source ~/miniconda3/etc/profile.d/conda.sh\n")),
    good("the hook", _job('eval "$(conda shell.bash hook)"\n')),
    good("a module", _job("module load anaconda3\n")),
    good("a login shell", _job("", " -l")),
    good("an interactive shell", _job("", " --login")),
    good("conda run", {"run.sh": "conda run -n train python train.py\n", **_SCRIPT}),
    good("documentation", {"README.md": "```bash\nconda activate train\npython train.py\n```\n", **_SCRIPT}),
)  # fmt: skip

_ACTIVATES = re.compile(
    r"^(?P<before>[^#\n\"']*?)(?P<call>\b(?P<name>conda|mamba|micromamba)[ \t]+activate\b[^\n;&|]*)", re.M
)
# What may define the function: another file, a module, the hook, start-up files, the script itself.
_MAY_DEFINE = re.compile(
    r"(?:^|[\s;&|])(?:source|\.|module|ml|eval|spack|setup-\w+)[ \t]+\S|conda\.sh|shell[ .](?:bash|hook|posix)"
    r"|conda[ \t]*\(\)|\bexport -f\b|BASH_ENV|\bconda\b[^\n]*\bhook\b",
    re.MULTILINE,
)
_STARTED = re.compile(r"#![^\n]*[ \t]-\w*[li]\w*\b|#![^\n]*--login|#!(?![^\n]*(?:ba|z|k)?sh\b)")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The first call of a script that nothing prepares."""
    del context
    text = doc.shell.text
    if doc.in_docs or doc.is_inner or doc.is_rewritten or doc.shell.base or doc.shell.anchor is not None:
        return
    found = _ACTIVATES.search(text)
    if found is None or _MAY_DEFINE.search(text[: found.start("call")]) or _STARTED.match(text):
        return
    if re.search(r"\b(?:bash|zsh)\s+-\w*[ilc]", found["before"]) or not (doc.commands or doc.called):
        return
    call = found["call"].rstrip()
    yield META.finding(
        doc.source.location(doc.shell.source_span(found.start("call"), found.start("call") + len(call))),
        f"`{found['name']} activate` fails in a script: nothing defines it, what follows runs in another environment",
        hint='Write `source "$(conda info --base)/etc/profile.d/conda.sh"` before it',
    )
