"""**What.** A command passes both `--fp16` and `--bf16` to the Trainer of transformers (or to ms-swift, LLaMA-Factory),
and both are true.

**Why it hurts.** `ValueError: At most one of fp16 and bf16 can be True, but not both`, in every process, after the job
was scheduled.

**Fix.** Keep one: `--bf16` where the GPUs have it.

**When it stays quiet.** For `--fp16 False`, for values that are not known, for scripts that are not known to read
`TrainingArguments`.

**Evidence.** transformers 5.23, `TrainingArguments.__post_init__`, run with both.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Safety
from dslint.model.context import Context
from dslint.model.launch.command import Flag
from dslint.model.launch.flagedits import without_flag
from dslint.model.plan.hfargs import parse_value
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL455",
    name="fp16-and-bf16-arguments",
    kind="plan",
    severity=Severity.ERROR,
    summary="Both fp16 and bf16 are requested: the Trainer refuses",
    fix="unsafe",
    references=("https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py",),
    depends_on_run=True,
    needs=("--fp16",),
)

_RUN = "torchrun --nproc_per_node 8 train.py --output_dir out --bf16 True --fp16 True\n"

EXAMPLES = (
    bad("both", {"run.sh": _RUN, "train.py": TRAINER}, "run.sh:1 error",
        {"run.sh": _RUN.replace(" --fp16 True", "")}),
    bad("as switches", {"run.sh": _RUN.replace(" True", ""), "train.py": TRAINER}, "run.sh:1 error",
        {"run.sh": _RUN.replace(" True", "").replace(" --fp16", "")}),
    good("one of them", {"run.sh": _RUN.replace("--fp16 True", "--fp16 False"), "train.py": TRAINER}),
    good("not known", {"run.sh": _RUN.replace("--fp16 True", "--fp16 $FP16"), "train.py": TRAINER}),
    good("another program", {
        "run.sh": _RUN, "train.py": "import argparse\n\nparser = argparse.ArgumentParser()\n"
        'for name in ("output_dir", "fp16", "bf16"):\n    parser.add_argument(f"--{name}")\nparser.parse_args()\n',
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The two precisions of one command."""
    command = plan.command
    half, brain = command.script_flag("--fp16"), command.script_flag("--bf16")
    if half is None or brain is None or not _reads_training_arguments(plan) or not (_is_on(half) and _is_on(brain)):
        return
    yield META.finding(
        half.location,
        "`--fp16` and `--bf16` are both true: the Trainer stops with `ValueError: At most one ... can be True`",
        hint="Keep one of them",
        related=(brain.location.labelled("the other one"),),
        fix=without_flag(command, half, Safety.UNSAFE),
        severity=Severity.WARNING if command.in_docs else None,
    )


def _is_on(flag: Flag) -> bool:
    if flag.value is None:
        return True
    return flag.value.text is not None and parse_value("fp16", flag.value.text).get_or(False) is True


def _reads_training_arguments(plan: RunPlan) -> bool:
    if plan.command.launcher in ("swift", "llamafactory"):
        return True
    parser = plan.parser
    return parser is not None and ("transformers", "TrainingArguments") in parser.libraries
