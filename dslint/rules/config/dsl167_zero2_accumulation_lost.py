"""ZeRO-2 with gradient accumulation on releases that lose gradients.

**What.** Stage 2 with `gradient_accumulation_steps` above 1 on DeepSpeed 0.17.6 to 0.18.2.

**Why it hurts.** Only the last micro batch of each step counts, divided by the number of steps: the model learns from a
part of its data with gradients that are too small. Nothing raises, and the loss still falls.

**Fix.** Upgrade to `deepspeed>=0.18.3`; where the version must stay, use stage 1.

**When it stays quiet.** Other releases, and ranges that reach beyond these; stages 0, 1 and 3; one step; an optimizer
that is offloaded, whose gradients take another way.

**Evidence.** Two ranks, three micro batches a step, released packages: with 0.17.6 the gradient norm at stage 2 is
0.515 and at stages 1 and 3 it is 1.409; with 0.17.5, 0.18.3 and 0.19.8 all are 1.409, with 0.18.2 as
with 0.17.6. `independent_gradient_partition_epilogue` in
`deepspeed/runtime/zero/stage_1_and_2.py` asks for gradients of an earlier micro batch in a table that 0.17.6 began to
fill at the end of the step only; 0.18.3 asks the right one.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.faults import loses_gradients
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL167",
    name="zero2-accumulation-lost",
    kind="config",
    severity=Severity.WARNING,
    summary="ZeRO-2 with a release of DeepSpeed that loses accumulated gradients",
    versions=("deepspeed>=0.17.6,<0.18.3",),
    depends_on_run=True,
    needs=("/gradient_accumulation_steps",),
)

_DS = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": %s,\n "zero_optimization": {"stage": %s}}\n'

EXAMPLES = (
    bad("an affected release", {"ds.json": _DS % (4, 2)}, "ds.json:1", deepspeed_version="0.18.2"),
    good("a later release", {"ds.json": _DS % (4, 2)}, deepspeed_version="0.18.3"),
    good("an earlier release", {"ds.json": _DS % (4, 2)}, deepspeed_version="0.17.5"),
    good("stage 1", {"ds.json": _DS % (4, 1)}, deepspeed_version="0.18.2"),
    good(
        "the optimizer is offloaded",
        {"ds.json": (_DS % (4, 2)).replace("2}", '2, "offload_optimizer": {"device": "cpu"}}')},
        deepspeed_version="0.18.2",
    ),
    good("one micro batch a step", {"ds.json": _DS % (1, 2)}, deepspeed_version="0.18.2"),
)

_STEPS = "/gradient_accumulation_steps"
_STAGE = "/zero_optimization/stage"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Stage, steps and release."""
    view = view_of(doc, context)
    steps = view.number(_STEPS)
    if steps.get_or(1) <= 1 or not loses_gradients(view):
        return
    yield META.finding(
        view.value(_STEPS),
        f"ZeRO stage 2 on {version_named(view.version)} keeps only the last of {steps.get()} accumulated micro"
        " batches, "
        "silently",
        hint="Upgrade to `deepspeed>=0.18.3`, or use ZeRO stage 1",
        related=(*version_origin(view.version), *((view.value(_STAGE, "the stage"),) if view.has(_STAGE) else ())),
        pointer=_STEPS,
        facts={"with": _STAGE},
    )
