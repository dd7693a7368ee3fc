"""**What.** `accelerate launch` with two of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed`, `--use_fsdp`.

**Why it hurts.** `ValueError: You can only use one of --cpu, --multi_gpu, --tpu, --use_deepspeed, --use_fsdp at a
time`, before anything starts.

**Fix.** Keep the one that is meant. `--multi_gpu` is not needed beside `--use_deepspeed`.

**When it stays quiet.** One of them; releases before 0.20.

**Evidence.** `accelerate/commands/launch.py` (`_validate_launch_command`), run with accelerate 1.15.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL482",
    name="accelerate-several-strategies",
    kind="plan",
    severity=Severity.ERROR,
    summary="Two flags of `accelerate launch` that exclude each other, such as `--multi_gpu --use_deepspeed`",
    versions=("accelerate>=0.20",),
    needs=("--cpu", "--multi_gpu", "--tpu", "--use_deepspeed", "--use_fsdp"),
)

_FLAGS = ("--cpu", "--multi_gpu", "--tpu", "--use_deepspeed", "--use_fsdp")
_RUN = "accelerate launch --multi_gpu --use_deepspeed --num_processes 8 train.py\n"

EXAMPLES = (
    bad("two strategies", {"run.sh": _RUN}, "run.sh:1"),
    bad("with dashes", {"run.sh": _RUN.replace("--multi_gpu", "--multi-gpu")}, "run.sh:1"),
    good("one strategy", {"run.sh": _RUN.replace("--multi_gpu ", "")}),
    good("a flag of the script", {"run.sh": _RUN.replace("--multi_gpu ", "").replace(".py", ".py --cpu")}),
)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The flags of one command."""
    if plan.command.launcher != "accelerate":
        return
    flags = [flag for flag in map(plan.command.launcher_flag, _FLAGS) if flag is not None]
    if len(flags) < 2:
        return
    names = " and ".join(f"`{flag.name}`" for flag in flags)
    yield META.finding(
        flags[1].location,
        f"{names} exclude each other: `accelerate launch` stops with a ValueError",
        hint=f"Keep one of {', '.join(flag.name for flag in flags)}",
        related=tuple(flag.location.labelled("the other flag") for flag in flags if flag is not flags[1]),
        severity=Severity.WARNING if plan.command.in_docs else None,
    )
