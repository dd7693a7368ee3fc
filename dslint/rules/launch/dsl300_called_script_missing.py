"""**What.** A launch script or a page of documentation calls a script of this project (`bash scripts/finetune_lora.sh`)
that does not exist, while the folder has one of nearly the same name (`finetune-lora.sh`), or the project has one of
that name elsewhere.

**Why it hurts.** bash says `No such file or directory` when the line is reached: after the hours that the steps before
it take, or, without `set -e`, in the middle of a log that goes on.

**Fix.** Write the name of the file that is there.

**When it stays quiet.** When no file is like it, or several are; for absolute paths and unknown variables; in folders
that are not in this project; when the text speaks of the file in another place, too (it tests for it, or makes it), or
fetches or unpacks anything. In documentation it is information.

**Evidence.** bash 5.2: `bash: scripts/x.sh: No such file or directory`, exit status 127.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL300",
    name="called-script-missing",
    kind="launch",
    severity=Severity.WARNING,
    summary="A script that is called does not exist, and one of nearly the same name does",
    no_experiment="a file that is not there needs no proof",
    needs=(r"/\.(?:sh|bash|slurm|sbatch)\b/",),
    depends_on_run=True,
)

_RUN = "torchrun --nproc_per_node $1 train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("a hyphen for an underscore", {
        "all.sh": "bash scripts/pretrain.sh 8\nbash scripts/finetune_lora.sh 8\n",
        "scripts/pretrain.sh": _RUN, "scripts/finetune-lora.sh": _RUN, **_SCRIPT,
    }, "all.sh:2 warning"),
    bad("the words in another order", {
        "all.sh": "sbatch jobs/train_7b.slurm 8\n", "jobs/7b_train.slurm": _RUN, **_SCRIPT,
    }, "all.sh:1 warning"),
    bad("it stands in another folder", {
        "all.sh": "bash scripts/sft_7b.sh 8\n", "scripts/eval.sh": _RUN, "scripts/sft/sft_7b.sh": _RUN, **_SCRIPT,
    }, "all.sh:1 warning"),
    bad("documentation", {
        "README.md": "```bash\nbash scripts/run_trian.sh 8\n```\n", "scripts/run_train.sh": _RUN, **_SCRIPT,
    }, "README.md:2 info"),
    good("the file is there", {"all.sh": "bash scripts/train.sh 8\n", "scripts/train.sh": _RUN, **_SCRIPT}),
    good("found from the folder above", {"jobs/all.sh": "bash scripts/a.sh 8\n", "scripts/a.sh": _RUN, **_SCRIPT}),
    good("no file is like it", {"all.sh": "bash scripts/sft.sh 8\n", "scripts/eval.sh": _RUN, **_SCRIPT}),
    good("another size", {"all.sh": "bash scripts/sft_13b.sh 8\n", "scripts/sft_7b.sh": _RUN, **_SCRIPT}),
    good("made before", {
        "all.sh": f"cat > scripts/run_a.sh <<EOF\n{_RUN}EOF\nbash scripts/run_a.sh 8\n",
        "scripts/a_run.sh": _RUN, **_SCRIPT,
    }),
    good("tested for", {
        "all.sh": "[ -f scripts/run_a.sh ] && bash scripts/run_a.sh 8\n", "scripts/a_run.sh": _RUN, **_SCRIPT,
    }),
    good("another project", {"all.sh": "bash ../other/run_a.sh 8\n", "scripts/a_run.sh": _RUN, **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, _context: Context) -> Iterator[Finding]:
    """Calls of scripts that are nowhere."""
    for lost in doc.lost_calls:
        yield META.finding(
            lost.location,
            f"`{lost.text}` does not exist: bash stops here with `No such file or directory`",
            hint=f"Did you mean `{lost.meant}`?",
            severity=Severity.INFO if doc.in_docs else None,
        )
