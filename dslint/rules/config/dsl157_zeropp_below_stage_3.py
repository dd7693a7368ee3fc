"""ZeRO++ below stage 3.

**What.** `zero_hpz_partition_size` above 1, `zero_quantized_weights`, `zero_quantized_nontrainable_weights` or
`zero_quantized_gradients` at a ZeRO stage below 3.

**Why it hurts.** They are ignored silently: nothing is quantized, no second partition exists, and communication
costs as much as before.

**Fix.** Set `stage` to 3, or delete them.

**When it stays quiet.** Stage 3, a stage that is not known, switches that are off.

**Evidence.** Run with DeepSpeed 0.19.8 on two ranks: losses and gradient norms are those of the config without the
keys, bit by bit, and `zero_quantized_gradients` with `reduce_scatter: false`, which stage 3 refuses, trains.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL157",
    name="zeropp-below-stage-3",
    kind="config",
    severity=Severity.WARNING,
    summary="Keys of ZeRO++ at a stage that ignores them",
    versions=("deepspeed>=0.10.0",),
    depends_on_run=True,
    needs=(
        "/zero_optimization/zero_quantized_weights",
        "/zero_optimization/zero_quantized_nontrainable_weights",
        "/zero_optimization/zero_quantized_gradients",
        "/zero_optimization/zero_hpz_partition_size",
    ),
)

_DS = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {\n %s,\n "stage": %s}}\n'
_SAVE = ', "stage3_gather_16bit_weights_on_model_save": true'

EXAMPLES = (
    bad("a second partition at stage 2", {"ds.json": _DS % ('"zero_hpz_partition_size": 8', 2)}, "ds.json:2"),
    bad("quantized gradients at stage 1", {"ds.json": _DS % ('"zero_quantized_gradients": true', 1)}, "ds.json:2"),
    good("at stage 3", {"ds.json": _DS % ('"zero_hpz_partition_size": 8' + _SAVE, 3)}),
    good("switched off", {"ds.json": _DS % ('"zero_quantized_weights": false, "zero_hpz_partition_size": 1', 2)}),
)

_SECTION = "/zero_optimization"
_SWITCHES = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """One finding for all keys."""
    view = view_of(doc, context)
    if not view.stage.is_known or view.stage.get() == 3:
        return
    found = [key for key in _SWITCHES if view.flag(f"{_SECTION}/{key}").get_or(False)]
    if view.number(f"{_SECTION}/zero_hpz_partition_size").get_or(1) > 1:
        found.insert(0, "zero_hpz_partition_size")
    if not found:
        return
    names = " and ".join(f"`{key}`" for key in found)
    yield META.finding(
        view.key(f"{_SECTION}/{found[0]}"),
        f"{names} at ZeRO stage {view.stage.get()} is silently ignored: ZeRO++ works at stage 3 only",
        hint="Set `stage` to 3, or delete the keys of ZeRO++",
        related=tuple(view.key(f"{_SECTION}/{key}", "ignored as well") for key in found[1:]),
        pointer=f"{_SECTION}/{found[0]}",
        facts={"with": f"{_SECTION}/stage"},
    )
