"""`torch_autocast` beside fp16 or bf16.

**What.** `torch_autocast.enabled` is true and `fp16` or `bf16` are switched on as well.

**Why it hurts.** Autocast is made for weights in fp32: it runs chosen operations in 16 bits and keeps the rest exact.
With fp16 or bf16 the weights are converted to 16 bits first, so nothing is left to keep exact, and the run pays for
both; what the config promises (fp32 weights with 16-bit compute) does not happen.

**Fix.** Keep one of the two.

**When it stays quiet.** It is an information: DeepSpeed's own example of 16-bit master weights combines the two on
purpose. One of them off, absent or `"auto"`; DeepSpeed before 0.17.2, which does not read the section.

**Evidence.** `deepspeed/runtime/torch_autocast.py`; run with DeepSpeed 0.19.8: both are accepted, and the weights of
the engine are `torch.bfloat16`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.precision import model_format
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL137",
    name="autocast-beside-16-bit",
    kind="config",
    severity=Severity.INFO,
    summary="`torch_autocast` with weights that fp16 or bf16 have converted already",
    versions=("deepspeed>=0.17.2",),
    depends_on_run=True,
    needs=("/torch_autocast/enabled",),
)

_DS = (
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1},\n'
    ' "torch_autocast": {"enabled": true, "dtype": "bfloat16"}%s}\n'
)

EXAMPLES = (
    bad("both", {"ds.json": _DS % ', "bf16": {"enabled": true}'}, "ds.json:2 info"),
    good("autocast alone", {"ds.json": _DS % ""}),
    good("bf16 is off", {"ds.json": _DS % ', "bf16": {"enabled": false}'}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both switches."""
    view = view_of(doc, context)
    pointer = "/torch_autocast/enabled"
    model = model_format(view)
    if not view.flag(pointer).get_or(False) or model.get_or("fp32") == "fp32" or view.runs(">=0.17.2") == "no":
        return
    name = model.get()
    yield META.finding(
        doc.value(pointer),
        f"`torch_autocast` and `{name}` are both on: the weights become {name} before autocast, and none stay in fp32",
        hint=f"Switch `{name}` off to keep fp32 weights, or delete `torch_autocast`",
        related=tuple(o.labelled(f"{name} is on") for o in model.origins),
        pointer=pointer,
    )
