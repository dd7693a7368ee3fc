"""A format for accumulated gradients that does not exist or does not fit.

**What.** `data_types.grad_accum_dtype` names no format that DeepSpeed knows (`"auto"` is none: neither transformers nor
accelerate fill it in); or ZeRO is off and it differs from the format of the model.

**Why it hurts.** The parser takes the value. Every rank stops when the engine makes its optimizer: `'fp64' is not a
valid DtypeEnum`, or `NotImplementedError: unsupported mix of model_dtype and grad_accum_dtype`.

**Fix.** One of fp32, fp16, bf16; without ZeRO the format of the model, or leave it out.

**When it stays quiet.** With ZeRO any known format is accepted (at stage 1, bf16 with fp32 accumulation chooses
another optimizer, which works). An unknown stage or precision.

**Evidence.** `DtypeEnum` in `deepspeed/inference/config.py`, `_do_optimizer_sanity_check` in
`deepspeed/runtime/engine.py`; run with DeepSpeed 0.19.8 at all stages with fp32 and bf16.
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
    code="DSL148",
    name="grad-accum-dtype",
    kind="config",
    severity=Severity.ERROR,
    summary="A format for accumulated gradients that stops the engine",
    fix="unsafe",
    depends_on_run=True,
    needs=("/data_types/grad_accum_dtype",),
)

_DS = '{"train_micro_batch_size_per_gpu": 4, "data_types": {"grad_accum_dtype": "%s"}, "bf16": {"enabled": true}%s}\n'
_ZERO = ', "zero_optimization": {"stage": 2}'

EXAMPLES = (
    bad(
        "no such format",
        {"ds.json": _DS % ("fp64", _ZERO)},
        "ds.json:1",
        fixed={
            "ds.json": (_DS % ("fp64", _ZERO)).replace('"data_types": {"grad_accum_dtype": "fp64"}', '"data_types": {}')
        },
    ),
    bad("nobody fills this in", {"ds.json": _DS % ("auto", _ZERO)}, "ds.json:1"),
    bad("without ZeRO the formats must agree", {"ds.json": _DS % ("fp32", "")}, "ds.json:1"),
    good("ZeRO accumulates in fp32", {"ds.json": _DS % ("fp32", _ZERO)}),
    good("the format of the model", {"ds.json": _DS % ("bf16", "")}),
    good("another spelling", {"ds.json": _DS % ("bfloat16", "")}),
)

_POINTER = "/data_types/grad_accum_dtype"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The value, then the value against the model."""
    view = view_of(doc, context)
    value = "auto" if view.is_auto(_POINTER) else view.fact(_POINTER).get_or(None)
    if value is None:
        return
    found = FORMATS.get(value) if isinstance(value, str) else None
    edits = delete_member(doc, _POINTER)
    fix = Fix("Delete `grad_accum_dtype`", edits, Safety.UNSAFE) if edits else None
    if found is None:
        yield META.finding(
            doc.value(_POINTER),
            f"`grad_accum_dtype` `{value}` is not a DeepSpeed dtype: the engine stops with `is not a valid DtypeEnum`",
            hint="Write fp32, fp16 or bf16, or leave it out",
            fix=fix,
            pointer=_POINTER,
        )
        return
    model = model_format(view)
    if view.stage.get_or(1) != 0 or not model.is_known or model.get() == found:
        return
    related = tuple(o.labelled(f"the model is {model.get()}") for o in model.origins)
    yield META.finding(
        doc.value(_POINTER),
        f"`grad_accum_dtype` is `{value}` but the model is {model.get()}: without ZeRO the engine stops (unsupported "
        "mix)",
        hint=f"Write {model.get()}, leave it out, or switch ZeRO on",
        related=related,
        fix=fix,
        pointer=_POINTER,
    )
