"""A 1-bit optimizer, which DeepSpeed has removed.

**What.** `optimizer.type` is `OneBitAdam`, `OneBitLamb` or `ZeroOneAdam`.

**Why it hurts.** DeepSpeed 0.19.7 and later have none of them: every rank stops with `AssertionError: OneBitAdam is
not a supported DeepSpeed Optimizer` when the engine is made. Older releases refuse them together with ZeRO
(`AssertionError: 1bit-Adam is not compatible with ZeRO`), so that with any stage the config runs in no release at all.

**Fix.** Use `AdamW` or `Lamb`; with ZeRO++ (`zero_quantized_gradients`) the traffic can be cut in other ways.

**When it stays quiet.** A script that passes an optimizer of its own; where nobody knows the reader of the config it is
a warning. A project that pins a release before 0.19.7, without ZeRO, gets an information only.

**Evidence.** `DEEPSPEED_OPTIMIZERS` in `deepspeed/runtime/config.py`, `_configure_basic_optimizer` in
`deepspeed/runtime/engine.py` of 0.9.0 to 0.19.6
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.hyper import ONE_BIT, OPTIMIZER, caveat, class_name, refused
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL118",
    name="optimizer-onebit-removed",
    kind="config",
    severity=Severity.ERROR,
    summary="A 1-bit optimizer: removed from DeepSpeed 0.19.7, and never compatible with ZeRO",
    versions=("deepspeed>=0.19.7",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/8489",),
    depends_on_run=True,
    needs=("/optimizer/type",),
)

_TEXT = '{\n  "train_batch_size": 8,\n  "optimizer": {"type": "%s", "params": {"lr": 0.001}}%s\n}\n'
_ZERO = ',\n  "zero_optimization": {"stage": 1}'

EXAMPLES = (
    bad("removed", {"ds.json": _TEXT % ("OneBitAdam", "")}, "ds.json:3 error", deepspeed_version="0.19.8",
        consumer="deepspeed"),
    bad("nobody states the release", {"ds.json": _TEXT % ("ZeroOneAdam", "")}, "ds.json:3 warning"),
    bad("no release takes it with ZeRO", {"ds.json": _TEXT % ("ZeroOneAdam", _ZERO)}, "ds.json:3 error",
        consumer="deepspeed"),
    bad("the pinned release has it", {"ds.json": _TEXT % ("OneBitLamb", "")}, "ds.json:3 info",
        deepspeed_version="0.16.9"),
    good("its successor", {"ds.json": _TEXT % ("AdamW", _ZERO)}, deepspeed_version="0.19.8"),
    good("the plain form", {"ds.json": _TEXT % ("Lamb", "")}, deepspeed_version="0.19.8"),
)  # fmt: skip

_REMOVED = "0.19.7"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The name in the section."""
    view = view_of(doc, context)
    fact = class_name(view, "optimizer")
    certain = refused(view)
    if certain is None or not fact.is_known or fact.get() not in ONE_BIT:
        return
    severity, effect, later = _effect(view)
    severity = certain if severity is Severity.ERROR else severity
    yield META.finding(
        doc.value(OPTIMIZER),
        f"`{view.raw(OPTIMIZER)}` is a 1-bit optimizer: {effect}{caveat(certain)}{later}",
        hint=f"Use `{'Lamb' if 'lamb' in fact.get() else 'AdamW'}`",
        related=version_origin(view.version),
        severity=severity,
        pointer=OPTIMIZER,
    )


def _effect(view: ConfigView) -> tuple[Severity, str, str]:
    """How bad it is, what happens, and what happens in later releases."""
    removed = view.runs(f">={_REMOVED}")
    with_zero = view.stage.get_or(0) > 0
    if removed == "yes":
        return Severity.ERROR, f"{version_named(view.version)} has none and stops", ""
    if with_zero:
        later = f"; DeepSpeed {_REMOVED} removed it" if removed == "maybe" else ""
        return Severity.ERROR, f"it fails with ZeRO stage {view.stage.get()}", later
    if removed == "maybe":
        return Severity.WARNING, f"DeepSpeed {_REMOVED} and later have none and stop", ""
    return Severity.INFO, f"{version_named(view.version)} has it, DeepSpeed {_REMOVED} and later stop", ""
