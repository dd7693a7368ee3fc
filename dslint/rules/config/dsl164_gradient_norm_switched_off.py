"""`compute_grad_norm: false` where the norm is needed.

**What.** `zero_optimization.compute_grad_norm` is false at ZeRO stage 0 or 3, or with gradient clipping, offload of the
optimizer or ZenFlow. Clipping is on without being written: since DeepSpeed 0.19.3 its default is 1.0.

**Why it hurts.** Every rank stops with a `ValueError`, at stage 0 and 3 while the config is read, else in
`deepspeed.initialize`.

**Fix.** At stages 1 and 2 switch clipping off (`"gradient_clipping": 0`; `--fix` writes it where nothing is written);
else delete `compute_grad_norm`.

**When it stays quiet.** Releases before 0.19.7, which do not know the key; `gradient_clipping` that a Trainer fills in.

**Evidence.** `DeepSpeedZeroConfig.compute_grad_norm_valid` and `DeepSpeedZeroOptimizer.__init__`, each case run with
DeepSpeed 0.19.8 on two ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.history import is_newer_than
from dslint.model.deepspeed.offload import OPTIMIZER, is_offloaded, offload_device
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import insert_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL164",
    name="gradient-norm-switched-off",
    kind="config",
    severity=Severity.ERROR,
    summary="`compute_grad_norm: false` where DeepSpeed needs the norm",
    fix="safe",
    versions=("deepspeed>=0.19.7",),
    depends_on_run=True,
    needs=("/zero_optimization/compute_grad_norm",),
)

_DS = """\
{
  "train_batch_size": 8,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": %s, "compute_grad_norm": false%s}%s
}
"""
_NEW = "0.19.8"
_OFF = ',\n  "gradient_clipping": 0'
_SAVE = ', "stage3_gather_16bit_weights_on_model_save": true'

EXAMPLES = (
    bad(
        "clipping by default",
        {"ds.json": _DS % (2, "", "")},
        "ds.json:4 error",
        fixed={"ds.json": _DS % (2, "", _OFF)},
        deepspeed_version=_NEW,
    ),
    bad(
        "clipping",
        {"ds.json": _DS % (1, "", ',\n  "gradient_clipping": 0.5')},
        "ds.json:4 error",
        deepspeed_version=_NEW,
    ),
    bad("stage 3", {"ds.json": _DS % (3, _SAVE, _OFF)}, "ds.json:4 error", deepspeed_version=_NEW),
    bad(
        "offload",
        {"ds.json": _DS % (2, ', "offload_optimizer": {"device": "cpu"}', _OFF)},
        "ds.json:4 error",
        deepspeed_version=_NEW,
    ),
    good("no clipping", {"ds.json": _DS % (2, "", _OFF)}, deepspeed_version=_NEW),
    good("the norm is computed", {"ds.json": (_DS % (2, "", "")).replace("false", "true")}, deepspeed_version=_NEW),
    good(
        "the Trainer fills the clipping in",
        {"ds.json": _DS % (2, "", ',\n  "gradient_clipping": "auto"')},
        deepspeed_version=_NEW,
    ),
)

_POINTER = "/zero_optimization/compute_grad_norm"
_CLIPPING = "/gradient_clipping"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The switch and what forbids it."""
    view = view_of(doc, context)
    norm = view.flag(_POINTER)
    if is_newer_than(_POINTER, view.version) or not view.stage.is_known or not norm.is_known or norm.get():
        return
    reason, beside = _reason(view)
    if not reason:
        return
    edits = insert_member(doc, "", "gradient_clipping", "0") if beside == "default" else ()
    yield META.finding(
        view.value(_POINTER),
        f"`compute_grad_norm` is false {reason}: DeepSpeed 0.19.7 and later raise `ValueError` on every rank",
        hint="Set `gradient_clipping` to 0" if beside in ("default", _CLIPPING) else "Delete `compute_grad_norm`",
        related=(view.nearest(beside, "this needs the norm"),) if beside.startswith("/") else (),
        fix=Fix("Set `gradient_clipping` to 0", edits, Safety.SAFE) if edits else None,
        pointer=_POINTER,
        facts={"with": "/zero_optimization/stage /gradient_clipping", "stage": view.stage.get()},
    )


def _reason(view: ConfigView) -> tuple[str, str]:
    """Why the norm is needed, and where that stands; empty where nothing certain needs it."""
    stage = view.stage.get()
    if stage not in (1, 2):
        return f"at ZeRO stage {stage}, which always computes it", "/zero_optimization/stage"
    if is_offloaded(offload_device(view, OPTIMIZER)):
        return "with an offloaded optimizer", OPTIMIZER
    if view.fact("/zero_optimization/zenflow").is_known:
        return "with ZenFlow", "/zero_optimization/zenflow"
    clipping = view.number(_CLIPPING)
    if clipping.is_known and clipping.get() > 0:
        return f"but gradients are clipped to {clipping.get():g}", _CLIPPING
    if clipping.is_absent and view.runs(">=0.19.3") != "no":
        return "but gradients are clipped to 1.0 by default", "default"
    return "", ""
