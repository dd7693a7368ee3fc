"""`data_types.param_dtype` against the precision that is switched on.

**What.** `data_types.param_dtype` names another format than the one that `fp16` or `bf16` switch on (fp32 when neither
is on), or none that DeepSpeed knows.

**Why it hurts.** The engine stops at start-up: `data_types.param_dtype='bf16' conflicts with the enabled precision
mode`. The key does not switch a format on by itself.

**Fix.** Switch the format on in its section, or leave `param_dtype` out.

**When it stays quiet.** DeepSpeed before 0.19.2, which does not read the key; `"auto"` precision under a Trainer.

**Evidence.** `_assert_valid_mixed_precision_config` in `deepspeed/runtime/engine.py`; run with DeepSpeed 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.precision import FORMATS, model_format
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import delete_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL149",
    name="param-dtype-conflict",
    kind="config",
    severity=Severity.ERROR,
    summary="`data_types.param_dtype` contradicts the precision that is switched on: the engine stops",
    fix="unsafe",
    versions=("deepspeed>=0.19.2",),
    depends_on_run=True,
    needs=("/data_types/param_dtype",),
)

_DS = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "data_types": {"grad_accum_dtype": "fp32", "param_dtype": "%s"},
  "zero_optimization": {"stage": 2}%s
}
"""
_BF16 = ',\n  "bf16": {"enabled": true}'

EXAMPLES = (
    bad("bf16 is not switched on", {"ds.json": _DS % ("bf16", "")}, "ds.json:3",
        fixed={"ds.json": _DS.replace(', "param_dtype": "%s"', "") % ""}),
    bad("the other format is on", {"ds.json": _DS % ("fp16", _BF16)}, "ds.json:3"),
    bad("no such format", {"ds.json": _DS % ("float8", _BF16)}, "ds.json:3"),
    good("they agree", {"ds.json": _DS % ("bf16", _BF16)}),
    good("fp32 is what runs", {"ds.json": _DS % ("fp32", "")}),
)  # fmt: skip

_POINTER = "/data_types/param_dtype"
_SINCE = "0.19.2"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The value against the switches."""
    view = view_of(doc, context)
    reached = view.runs(f">={_SINCE}")
    value = "auto" if view.is_auto(_POINTER) else view.fact(_POINTER).get_or(None)
    if value is None or reached == "no":
        return
    found = FORMATS.get(value) if isinstance(value, str) else None
    model = model_format(view)
    if found is not None and (not model.is_known or model.get() == found):
        return
    reason = f"the model is {model.get()}" if found else "that is not a DeepSpeed dtype"
    who = "DeepSpeed stops" if reached == "yes" else f"DeepSpeed {_SINCE} and later stop"
    edits = delete_member(doc, _POINTER)
    yield META.finding(
        doc.value(_POINTER),
        f"`data_types.param_dtype` is `{value}`, but {reason}: {who} when the engine is made",
        hint=f'Add `"{found}": {{"enabled": true}}` or leave the key out'
        if found in ("fp16", "bf16")
        else "Leave it out",
        related=tuple(o.labelled(f"the model is {model.get()}") for o in model.origins) if found else (),
        fix=Fix("Delete `param_dtype`", edits, Safety.UNSAFE) if edits else None,
        pointer=_POINTER,
    )
