"""Gradient accumulation of the arguments with a release that loses gradients at ZeRO stage 2.

**What.** Stage 2 in the config, more than one accumulation step in the arguments of the run (the config says `"auto"`
or nothing), DeepSpeed 0.17.6 to 0.18.2.

**Why it hurts.** Only the last micro batch of each step counts, divided by the number of steps: the model learns from a
part of its data with gradients that are too small. Nothing raises, and the loss still falls.

**Fix.** Upgrade to `deepspeed>=0.18.3`; where the version must stay, use stage 1.

**When it stays quiet.** Steps that the config states itself (`zero2-accumulation-lost` speaks then) or that nobody can
read; other releases and ranges that reach beyond these; other stages; an optimizer that is offloaded.

**Evidence.** As for `zero2-accumulation-lost`: measured on two ranks with the released 0.17.5, 0.17.6,
0.18.2 and 0.18.3; `deepspeed/runtime/zero/stage_1_and_2.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.core.source import labelled
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.faults import loses_gradients
from dslint.model.deepspeed.view import ConfigView
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL477",
    name="accumulation-of-run-lost",
    kind="plan",
    severity=Severity.WARNING,
    summary="A run that accumulates gradients with a release of DeepSpeed that loses them at ZeRO stage 2",
    versions=("deepspeed>=0.17.6,<0.18.3",),
    depends_on_run=True,
    needs=("config",),
)

_RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out --gradient_accumulation_steps %s\n"
_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",\n "gradient_clipping": "auto",\n'
    ' "zero_optimization": {"stage": %s}}\n'
)

EXAMPLES = (
    bad(
        "an affected release",
        {"run.sh": _RUN % 4, "train.py": TRAINER, "ds.json": _DS % 2},
        "ds.json:1",
        deepspeed_version="0.18.1",
    ),
    good(
        "a later release",
        {"run.sh": _RUN % 4, "train.py": TRAINER, "ds.json": _DS % 2},
        deepspeed_version="0.18.3",
    ),
    good(
        "one micro batch a step",
        {"run.sh": _RUN % 1, "train.py": TRAINER, "ds.json": _DS % 2},
        deepspeed_version="0.18.1",
    ),
    good("stage 1", {"run.sh": _RUN % 4, "train.py": TRAINER, "ds.json": _DS % 1}, deepspeed_version="0.18.1"),
)

_STEPS = "/gradient_accumulation_steps"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Stage and release of the config, steps of the run."""
    if plan.config is None or plan.config_is_rewritten or plan.batch.steps.get_or(1) <= 1:
        return
    view = ConfigView(plan.config, replace(context, consumer=plan.consumer))
    if view.number(_STEPS).is_known or not loses_gradients(view):
        return
    steps = plan.batch.steps
    at = _STEPS if view.has(_STEPS) else "/zero_optimization/stage"
    yield META.finding(
        view.value(at),
        f"ZeRO stage 2 on {version_named(view.version)} keeps only the last of {steps.get()} accumulated micro"
        " batches, "
        "silently",
        hint="Upgrade to `deepspeed>=0.18.3`, or use ZeRO stage 1",
        related=(*version_origin(view.version), *labelled(steps.origins[:2], "accumulates")),
        severity=Severity.INFO if plan.command.in_docs else None,
        pointer=at,
        facts={"with": "/zero_optimization/stage"},
    )
