"""**What.** A run reads a checkpoint from a path that another run of the project writes under another spelling:
`--output_dir checkpoints/llava-stage1` in one file, `--ckpt checkpoints/llava_stage1/model.bin` in the next.

**Why it hurts.** The second job waits in the queue, loads and stops: nothing is there. Scripts that test for the file
first, or that take the path for a name of the hub, start from other weights instead.

**Fix.** Spell both alike, best by one variable in a file that both source.

**When it stays quiet.** When a run writes exactly this path or a folder above it, when the folder is in the project,
when several other paths are as near, and when the spellings differ in more than case, dashes and underscores.

**Evidence.** The file system: names are told apart by every letter.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL445",
    name="continued-path-differs",
    kind="plan",
    severity=Severity.WARNING,
    summary="A run reads a path that another run of the project writes under another spelling",
    depends_on_run=True,
    references=("https://man7.org/linux/man-pages/man7/path_resolution.7.html",),
    needs=("continues",),
    no_experiment="two spellings are two files: nothing about it depends on ranks",
)

_SCRIPT = {
    "train.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--ckpt')\n"
    "p.add_argument('--local_rank')\np.add_argument('--output_dir')\np.add_argument('--data')\nargs = p.parse_args()\n"
}
_FIRST = "deepspeed train.py --output_dir ./checkpoints/llava-stage1\n"
_NEXT = "deepspeed train.py --ckpt {} --output_dir ./checkpoints/llava-stage2\n"

EXAMPLES = (
    bad(
        "dash and underscore",
        {"stage1.sh": _FIRST, "stage2.sh": _NEXT.format("./checkpoints/llava_stage1/model.bin"), **_SCRIPT},
        "stage2.sh:1 warning",
    ),
    bad(
        "another case, in one file",
        {"run.sh": _FIRST + _NEXT.format("checkpoints/LLaVA-stage1"), **_SCRIPT},
        "run.sh:2 warning",
    ),
    good("the same", {"a.sh": _FIRST, "b.sh": _NEXT.format("checkpoints/llava-stage1/model.bin"), **_SCRIPT}),
    good("both are written", {
        "a.sh": _FIRST.replace("llava", "qwen"), "b.sh": _FIRST.replace("llava-", "qwen_"),
        "c.sh": _NEXT.format("checkpoints/qwen_stage1"), **_SCRIPT,
    }),
    good("another number", {"a.sh": _FIRST, "b.sh": _NEXT.format("checkpoints/llava-stage0"), **_SCRIPT}),
    good("it is in the project", {
        "a.sh": _FIRST, "b.sh": _NEXT.format("checkpoints/llava_stage1/model.bin"),
        "checkpoints/llava_stage1/model.bin": "", **_SCRIPT,
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Paths that nobody writes as they are read."""
    for found in plan.continues:
        yield META.finding(
            found.location,
            f"nobody writes `{found.text}`, which this run reads: another run writes `{found.meant}`",
            hint="Spell both paths alike",
            related=(found.written.labelled("written here"),),
            severity=Severity.INFO if plan.command.in_docs else None,
            facts={"option": found.option, "meant": found.meant},
        )
