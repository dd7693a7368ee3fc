"""A dynamic loss scale without a positive window or lower limit.

**What.** fp16 is on, `loss_scale` is 0 (or absent), which means a dynamic scale, and `loss_scale_window` or
`min_loss_scale` is not positive.

**Why it hurts.** DeepSpeed 0.18.8 and later stop at start-up with a `ValidationError`. Before, a window of 0 stops the
first step that looks at it with a `ZeroDivisionError` (`DynamicLossScaler.update_scale` divides by it).

**Fix.** A positive number: DeepSpeed's own values are 1000 and 1.

**When it stays quiet.** fp16 off or `"auto"`; a static `loss_scale`, which uses neither value; releases before 0.18.8,
where only a window of 0 is reported.

**Evidence.** `DeepSpeedFP16Config` in `deepspeed/runtime/precision_config.py`: "must be > 0 when dynamic loss
scaling is enabled".
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL144",
    name="dynamic-loss-scale-limit",
    kind="config",
    severity=Severity.ERROR,
    summary="A dynamic loss scale whose window or lower limit is not positive: DeepSpeed stops at start-up",
    versions=("deepspeed>=0.18.8",),
    depends_on_run=True,
    needs=("/fp16/loss_scale_window", "/fp16/min_loss_scale"),
)

_FP16 = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, %s}}\n'

EXAMPLES = (
    bad("a window of 0", {"ds.json": _FP16 % '"loss_scale_window": 0'}, "ds.json:1 error"),
    bad("no lower limit", {"ds.json": _FP16 % '"loss_scale": 0, "min_loss_scale": 0'}, "ds.json:1 error"),
    bad(
        "an older release divides by the window",
        {"ds.json": _FP16 % '"loss_scale_window": 0'},
        "ds.json:1 error",
        deepspeed_version="0.16.9",
    ),
    good("a static scale", {"ds.json": _FP16 % '"loss_scale": 128, "loss_scale_window": 0'}),
    good("fp16 is off", {"ds.json": (_FP16 % '"loss_scale_window": 0').replace("true", "false")}),
    good("an older release takes it", {"ds.json": _FP16 % '"min_loss_scale": 0'}, deepspeed_version="0.16.9"),
)

_SINCE = "0.18.8"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """fp16 with a dynamic scale."""
    view = view_of(doc, context)
    scale = view.number("/fp16/loss_scale")
    if view.flag("/fp16/enabled").get_or(False) is not True or scale.is_unknown or scale.get_or(0) != 0:
        return
    reached = view.runs(f">={_SINCE}")
    for name in ("loss_scale_window", "min_loss_scale"):
        pointer = f"/fp16/{name}"
        value = view.number(pointer)
        if not value.is_known or value.get() > 0:
            continue
        divides = name == "loss_scale_window" and value.get() == 0
        if reached == "no" and not divides:
            continue
        who = version_named(view.version) if view.version.is_known and reached != "maybe" else "DeepSpeed"
        effect = f"{who} stops at start-up"
        if reached == "no":
            effect = f"{who} divides by it and stops"
        elif reached == "maybe":
            effect = f"DeepSpeed {_SINCE} and later stop at start-up"
        yield META.finding(
            doc.value(pointer),
            f"`fp16.{name}` is {value.get()}, but dynamic loss scaling needs a positive number: {effect}",
            hint=f"Write {'1000' if 'window' in name else '1'}, or set a static `loss_scale`",
            related=version_origin(view.version),
            pointer=pointer,
        )
