"""A second partition of ZeRO++ that does not divide the ranks of the launch command.

**What.** The config says `zero_hpz_partition_size` N at ZeRO stage 3; the command starts a number of ranks above N that
is not a multiple of it.

**Why it hurts.** Every rank stops with an `AssertionError` ("... is not divisible by ...") when the groups are made.

**Fix.** Set it to the number of GPUs of a node.

**When it stays quiet.** A world size that is not readable; fewer ranks than N, to which DeepSpeed clamps it; configs
that the script changes.

**Evidence.** `_create_zero_param_parallel_group` in `deepspeed/utils/groups.py`, run with DeepSpeed 0.19.8 on 3 ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import ConfigView
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import ARGUMENTS

META = RuleMeta(
    code="DSL474",
    name="hpz-world",
    kind="plan",
    severity=Severity.ERROR,
    summary="`zero_hpz_partition_size` does not divide the world size of the launch command",
    versions=("deepspeed>=0.10.0",),
    depends_on_run=True,
    supersedes=("DSL158",),
    needs=("config",),
)

_RUN = "deepspeed --num_gpus %s train.py --deepspeed --deepspeed_config ds.json\n"
_DS = (
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3,\n'
    ' "zero_hpz_partition_size": %s,\n "stage3_gather_16bit_weights_on_model_save": true}}\n'
)

EXAMPLES = (
    bad(
        "six ranks in groups of four",
        {"run.sh": _RUN % 6, "train.py": ARGUMENTS, "ds.json": _DS % 4},
        "ds.json:2 error",
    ),
    good("eight ranks in groups of four", {"run.sh": _RUN % 8, "train.py": ARGUMENTS, "ds.json": _DS % 4}),
    good("fewer ranks than a group has", {"run.sh": _RUN % 2, "train.py": ARGUMENTS, "ds.json": _DS % 8}),
    good("the platform says how many", {"run.sh": _RUN % '"$GPUS"', "train.py": ARGUMENTS, "ds.json": _DS % 4}),
)

_POINTER = "/zero_optimization/zero_hpz_partition_size"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The size of the groups and the ranks of one run."""
    if plan.config is None or plan.config_is_rewritten or not plan.world_size.is_known:
        return
    view = ConfigView(plan.config, replace(context, consumer=plan.consumer))
    size, world = view.number(_POINTER).get_or(1), plan.world_size.get()
    if view.stage.get_or(0) != 3 or size <= 1 or world <= size or world % size == 0:
        return
    yield META.finding(
        view.value(_POINTER),
        f"`zero_hpz_partition_size` {size} does not divide the {world} ranks of the command: each stops with "
        "`AssertionError`",
        hint="Set it to the number of GPUs of a node",
        related=(plan.command.location.labelled("the command that starts this run"),),
        severity=Severity.WARNING if plan.command.in_docs else None,
        pointer=_POINTER,
        facts={"world": world},
    )
