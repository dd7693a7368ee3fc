"""A static loss scale for fp16.

**What.** fp16 is on and `loss_scale` is a positive number. Off by default.

**Why it hurts.** A static scale switches the dynamic one off: gradients that overflow at this scale stop being applied
for good, and small ones underflow without a trace. LAMB refuses it.

**Fix.** `"loss_scale": 0` for the dynamic scale.

**When it stays quiet.** fp16 off or `"auto"`.

**Evidence.** `DeepSpeedFP16Config` in `deepspeed/runtime/precision_config.py`: "Default value of 0 means dynamic loss
scaling".
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL146",
    name="fp16-static-scale",
    kind="config",
    severity=Severity.INFO,
    summary="A static loss scale of fp16: an overflow never lowers it",
    optional=True,
    no_experiment="fp16 needs a GPU, and a static scale may be meant",
    needs=("/fp16/loss_scale",),
)

_FP16 = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "loss_scale": %s}}\n'

EXAMPLES = (
    bad("128 forever", {"ds.json": _FP16 % 128}, "ds.json:1 info"),
    good("dynamic", {"ds.json": _FP16 % 0}),
    good("fp16 is off", {"ds.json": (_FP16 % 128).replace("true", "false")}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The scale."""
    view = view_of(doc, context)
    scale = view.number("/fp16/loss_scale")
    if view.flag("/fp16/enabled").get_or(False) and scale.is_known and scale.get() > 0:
        yield META.finding(
            doc.value("/fp16/loss_scale"),
            f"`fp16.loss_scale` is {scale.get():g}, a static scale: when gradients overflow at it, it stays",
            hint="Write 0 for the dynamic scale",
            pointer="/fp16/loss_scale",
        )
