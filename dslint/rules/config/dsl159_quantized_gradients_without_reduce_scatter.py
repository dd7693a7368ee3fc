"""Quantized gradients without reduce-scatter.

**What.** `zero_quantized_gradients: true` with `reduce_scatter: false` at ZeRO stage 3.

**Why it hurts.** Every rank stops in `deepspeed.initialize`: `AssertionError: when enable all_to_all_reduce,
reduce_scatter should also be enabled`.

**Fix.** Set `reduce_scatter` to true, its default; `--fix` does.

**When it stays quiet.** Other stages, which ignore the quantization (`zeropp-below-stage-3` says so).

**Evidence.** `DeepSpeedZeroOptimizer_Stage3.__init__`, run with DeepSpeed 0.19.8 on two ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.history import is_newer_than
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL159",
    name="quantized-gradients-without-reduce-scatter",
    kind="config",
    severity=Severity.ERROR,
    summary="`zero_quantized_gradients` needs `reduce_scatter`: the engine does not start",
    fix="safe",
    versions=("deepspeed>=0.10.0",),
    depends_on_run=True,
    needs=("/zero_optimization/zero_quantized_gradients",),
)

_DS = (
    '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3,\n'
    ' "zero_quantized_gradients": %s,\n "reduce_scatter": %s,\n'
    ' "stage3_gather_16bit_weights_on_model_save": true}}\n'
)

EXAMPLES = (
    bad(
        "the two contradict each other",
        {"ds.json": _DS % ("true", "false")},
        "ds.json:3 error",
        fixed={"ds.json": _DS % ("true", "true")},
    ),
    good("reduced and scattered", {"ds.json": _DS % ("true", "true")}),
    good("not quantized", {"ds.json": _DS % ("false", "false")}),
)

_POINTER = "/zero_optimization/reduce_scatter"
_QUANTIZED = "/zero_optimization/zero_quantized_gradients"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both switches and the stage."""
    view = view_of(doc, context)
    if view.stage.get_or(0) != 3 or is_newer_than(_QUANTIZED, view.version):
        return
    if not view.flag(_QUANTIZED).get_or(False) or view.flag(_POINTER).get_or(True):
        return
    edits = replace_value(doc, _POINTER, "true")
    yield META.finding(
        view.value(_POINTER),
        "`zero_quantized_gradients` needs `reduce_scatter`, which is false: every rank stops with `AssertionError`",
        hint="Set `reduce_scatter` to true",
        related=(view.value(_QUANTIZED, "gradients are quantized here"),),
        fix=Fix("Set `reduce_scatter` to true", edits, Safety.SAFE) if edits else None,
        pointer=_POINTER,
        facts={"with": f"/zero_optimization/stage {_QUANTIZED}"},
    )
