"""A first loss scale far away from any useful one.

**What.** `fp16.initial_scale_power` below 0 or above 64 (a warning) or above 24 (an information), with a dynamic scale.

**Why it hurts.** Training begins with a scale of 2 to this power. Gradients of a real model overflow above 2^20 or so:
every power more is a first step that is skipped and halves the scale, so that 32 wastes about sixteen batches, and an
absurd one the whole warm-up. A negative power makes gradients smaller than they are: they underflow to zero.

**Fix.** 16, DeepSpeed's own value, or leave it out.

**When it stays quiet.** fp16 off or `"auto"` under plain DeepSpeed; a static `loss_scale`.

**Evidence.** `DynamicLossScaler` in `deepspeed/runtime/fp16/loss_scaler.py`; DeepSpeed 0.19.8 accepts -1 and 200.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL145",
    name="fp16-scale-power",
    kind="config",
    severity=Severity.WARNING,
    summary="A first loss scale of fp16 at which the first steps are lost",
    fix="unsafe",
    no_experiment="fp16 needs a GPU, and the number of lost steps depends on the model",
    needs=("/fp16/initial_scale_power",),
)

_FP16 = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "initial_scale_power": %s}}\n'

EXAMPLES = (
    bad("no gradient survives", {"ds.json": _FP16 % -1}, "ds.json:1 warning", fixed={"ds.json": _FP16 % 16}),
    bad("two hundred lost steps", {"ds.json": _FP16 % 200}, "ds.json:1 warning", fixed={"ds.json": _FP16 % 16}),
    bad("sixteen lost steps", {"ds.json": _FP16 % 32}, "ds.json:1 info", fixed={"ds.json": _FP16 % 16}),
    good("DeepSpeed's own value", {"ds.json": _FP16 % 16}),
    good("a static scale", {"ds.json": (_FP16 % 32).replace('"init', '"loss_scale": 128, "init')}),
    good("fp16 is off", {"ds.json": (_FP16 % 32).replace("true", "false")}),
)

_POINTER = "/fp16/initial_scale_power"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The power of a dynamic scale."""
    view = view_of(doc, context)
    power, scale, enabled = view.number(_POINTER), view.number("/fp16/loss_scale"), view.flag("/fp16/enabled")
    is_on = enabled.get_or(False) or (enabled.is_unknown and view.is_auto("/fp16/enabled"))
    if not power.is_known or not is_on or scale.is_unknown or scale.get_or(0) != 0:
        return
    value = power.get()
    if 0 <= value <= 24:
        return
    effect = "gradients underflow to zero"
    if value > 0:
        effect = f"about {value - 16:g} steps overflow and are skipped first"
    edits = replace_value(doc, _POINTER, "16")
    yield META.finding(
        doc.value(_POINTER),
        f"`fp16.initial_scale_power` is {value:g}: training starts with a loss scale of 2^{value:g}, and {effect}",
        hint="Write 16 or leave it out",
        fix=Fix("Write 16", edits, Safety.UNSAFE) if edits else None,
        severity=Severity.WARNING if value < 0 or value > 64 else Severity.INFO,
        pointer=_POINTER,
    )
