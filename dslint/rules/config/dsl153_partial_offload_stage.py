"""Partial offload of the optimizer below ZeRO stage 3.

**What.** `offload_optimizer.ratio` below 1 at a stage other than 3.

**Why it hurts.** Every rank stops while the config is read: "Partial offloading only supported for ZeRO Stage 3". The
device does not matter: `none` is refused as well.

**Fix.** Set `stage` to 3, or delete `ratio`.

**When it stays quiet.** Stage 3, a stage that is not known, releases before the key (0.11.0 and older).

**Evidence.** `DeepSpeedZeroConfig.offload_ratio_check`, run with DeepSpeed 0.19.8.
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
    code="DSL153",
    name="partial-offload-stage",
    kind="config",
    severity=Severity.ERROR,
    summary="`offload_optimizer.ratio` below 1 needs ZeRO stage 3",
    depends_on_run=True,
    needs=("/zero_optimization/offload_optimizer/ratio",),
)

_DS = (
    '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {\n "stage": %s,\n'
    ' "offload_optimizer": {"device": "cpu", "ratio": %s}, "stage3_gather_16bit_weights_on_model_save": true}}\n'
)

EXAMPLES = (
    bad("half of it at stage 2", {"ds.json": _DS % (2, 0.5)}, "ds.json:3 error"),
    good("half of it at stage 3", {"ds.json": _DS % (3, 0.5)}),
    good("all of it", {"ds.json": _DS % (2, "1.0")}),
)

_POINTER = "/zero_optimization/offload_optimizer/ratio"
_STAGE = "/zero_optimization/stage"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The ratio and the stage."""
    view = view_of(doc, context)
    ratio = view.number(_POINTER)
    if not ratio.is_known or not 0 <= ratio.get() < 1 or not view.stage.is_known or view.stage.get() == 3:
        return
    if is_newer_than(_POINTER, view.version):
        return  # An unknown key: another rule says so.
    yield META.finding(
        view.value(_POINTER),
        f"`ratio` {ratio.get()} offloads part of the optimizer, which needs stage 3, not {view.stage.get()}:"
        " every rank "
        "stops",
        hint="Set `stage` to 3, or delete `ratio`",
        related=(view.value(_STAGE, "the stage"),) if view.has(_STAGE) else (),
        pointer=_POINTER,
        facts={"with": _STAGE},
    )
