"""`managed_gradient_accumulation: false` with a feature that needs it.

**What.** The script accumulates gradients itself (`managed_gradient_accumulation: false`), and the config switches
`overlap_comm` on at ZeRO stage 0 or 1, or uses DeepCompile.

**Why it hurts.** Every rank stops in `deepspeed.initialize` with an `AssertionError`. Its text says "only with ZeRO
stage 2"; stage 3 runs as well.

**Fix.** Set `overlap_comm` to false, or `managed_gradient_accumulation` to true.

**When it stays quiet.** Releases before the key (0.19.4). `overlap_comm` that is not set: it is off below stage 3.

**Evidence.** `DeepSpeedEngine._do_sanity_check`, run with DeepSpeed 0.19.8 on two ranks at each stage.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.history import is_newer_than
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL165",
    name="managed-accumulation-needed",
    kind="config",
    severity=Severity.ERROR,
    summary="`managed_gradient_accumulation: false` with a feature that needs it",
    versions=("deepspeed>=0.19.4",),
    depends_on_run=True,
    needs=("/managed_gradient_accumulation",),
)

_DS = (
    '{"train_batch_size": 8, "bf16": {"enabled": true}, "managed_gradient_accumulation": %s,\n'
    ' "zero_optimization": {"stage": %s, "overlap_comm": %s}%s}\n'
)
_NEW = "0.19.8"

EXAMPLES = (
    bad("overlap at stage 1", {"ds.json": _DS % ("false", 1, "true", "")}, "ds.json:1 error", deepspeed_version=_NEW),
    bad(
        "DeepCompile",
        {"ds.json": _DS % ("false", 1, "false", ', "compile": {"deepcompile": true}')},
        "ds.json:1 error",
        deepspeed_version=_NEW,
    ),
    good("overlap at stage 2", {"ds.json": _DS % ("false", 2, "true", "")}, deepspeed_version=_NEW),
    good("no overlap", {"ds.json": _DS % ("false", 1, "false", "")}, deepspeed_version=_NEW),
    good("managed", {"ds.json": _DS % ("true", 1, "true", "")}, deepspeed_version=_NEW),
)

_POINTER = "/managed_gradient_accumulation"
_OVERLAP = "/zero_optimization/overlap_comm"
_COMPILE = "/compile/deepcompile"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The switch and the two features."""
    view = view_of(doc, context)
    managed = view.fact(_POINTER)
    if not managed.is_known or managed.get() is not False or is_newer_than(_POINTER, view.version):
        return
    if view.stage.get_or(3) < 2 and view.flag(_OVERLAP).get_or(False):
        other, told = _OVERLAP, f"`overlap_comm` at ZeRO stage {view.stage.get()}"
    elif view.flag(_COMPILE).get_or(False):
        other, told = _COMPILE, "DeepCompile"
    else:
        return
    yield META.finding(
        view.value(_POINTER),
        f"`managed_gradient_accumulation` is false, but {told} needs it: every rank stops with an `AssertionError`",
        hint=f"Switch `{other.rpartition('/')[2]}` off, or let DeepSpeed manage the accumulation",
        related=(view.value(other, "this needs it"),),
        pointer=_POINTER,
        facts={"with": f"/zero_optimization/stage {other}"},
    )
