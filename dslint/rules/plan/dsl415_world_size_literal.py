"""**What.** The script creates the process group for a fixed number of ranks, `init_process_group(world_size=8)`, and
the launch command starts another number.

**Why it hurts.** With fewer processes than the literal all of them wait for the missing ranks until the timeout, ten
minutes to half an hour; with more, the ranks beyond it stop.

**Fix.** Leave `world_size` out, or read it from `WORLD_SIZE`: the launcher says it.

**When it stays quiet.** When the number is computed or comes from an argument, when it is as large as the run, when
the call is in another file, and when the number of processes is not known.

**Evidence.** torch 2.13 with gloo: two ranks that are told of three do not get past `init_process_group`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.recipe import starts
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL415",
    name="world-size-literal",
    kind="plan",
    severity=Severity.WARNING,
    summary="The process group is made for another number of ranks than the command starts",
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",),
    depends_on_run=True,
    needs=("group_size",),
)

_SCRIPT = (
    "import os\n\nimport torch.distributed as dist\n\nrank = int(os.environ['RANK'])\n"
    "dist.init_process_group('gloo', rank=rank, world_size=8)\ndist.destroy_process_group()\n"
)
_RUN = "torchrun --nproc_per_node 4 train.py\n"

EXAMPLES = (
    bad("eight ranks are waited for, four come", {"run.sh": _RUN, "train.py": _SCRIPT}, "train.py:6 warning"),
    good("as many", {"run.sh": _RUN.replace("4", "8"), "train.py": _SCRIPT}),
    good("the launcher says it", {
        "run.sh": _RUN, "train.py": _SCRIPT.replace("world_size=8", "world_size=int(os.environ['WORLD_SIZE'])"),
    }),
    good("the number of processes is not known", {"run.sh": _RUN.replace("4", "$GPUS"), "train.py": _SCRIPT}),
    good("under a condition", {
        "run.sh": _RUN,
        "train.py": _SCRIPT.replace("dist.init", "if 'EIGHT' in os.environ:\n    dist.init"),
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Compare the literal with the world size of the command."""
    literal, world = plan.group_size, plan.world_size
    if not literal.is_known or not world.is_known or literal.get() == world.get():
        return
    if plan.command.launcher not in ("torchrun", "deepspeed", "accelerate") or plan.command.in_docs:
        return
    more = literal.get() > world.get()
    effect = "they wait for the missing ranks until the timeout" if more else "the ranks beyond it stop"
    yield META.finding(
        literal.origins[0],
        f"the process group is made for {literal.get()} ranks, but the command starts {world.get()}: {effect}",
        hint="Leave `world_size` out: the launcher sets it",
        related=(starts(plan.command), *(o.labelled("the number of processes") for o in world.origins)),
        facts={"literal": literal.get(), "world": world.get()},
    )
