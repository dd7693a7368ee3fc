"""ZenFlow without the offload that it is made of.

**What.** A section `zero_optimization.zenflow` at stage 0, or at stage 1 or 2 without an `offload_optimizer` to the
CPU.

**Why it hurts.** ZenFlow is a way to overlap the offloaded update with training. At stages 1 and 2 every rank stops
with `ValueError: Zenflow must be used with cpu offload` when the engine is made, after the model was loaded. Without
ZeRO the first step stops with `AttributeError: ... has no attribute 'zenflow_need_update'`.

**Fix.** `"offload_optimizer": {"device": "cpu"}` at stage 1 or 2, or no `zenflow`.

**When it stays quiet.** At stage 3; a device of NVMe, `"auto"` that accelerate fills in, and what only a run knows;
`"zenflow": null`, and `"auto"`, which DeepSpeed drops; releases that do not know ZenFlow.

**Evidence.** `ZenFlowZeroOptimizer._configure_zenflow` in `deepspeed/runtime/zenflow/zenflow_stage_1_and_2.py`; run
with DeepSpeed 0.19.8 on one rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.history import is_newer_than
from dslint.model.deepspeed.offload import OPTIMIZER, ZERO, offload_device
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL115",
    name="zenflow-without-offload",
    kind="config",
    severity=Severity.ERROR,
    summary="ZenFlow stops without ZeRO and without an optimizer on the CPU",
    depends_on_run=True,
    needs=("/zero_optimization/zenflow",),
)

_TEXT = '{"train_batch_size": 8, "zero_optimization": {"stage": %s, "zenflow": {"topk_ratio": 0.1}%s}}\n'
_OFF = ', "offload_optimizer": {"device": "%s"}'

EXAMPLES = (
    bad("no offload", {"ds.json": _TEXT % (2, "")}, "ds.json:1 error"),
    bad("offload to nowhere", {"ds.json": _TEXT % (1, _OFF % "none")}, "ds.json:1 error"),
    bad("no ZeRO", {"ds.json": _TEXT % (0, "")}, "ds.json:1 error"),
    good("on the CPU", {"ds.json": _TEXT % (2, _OFF % "cpu")}),
    good("the device is left to accelerate", {"ds.json": _TEXT % (2, _OFF % "auto")}, consumer="accelerate"),
    good("no ZenFlow", {"ds.json": (_TEXT % (2, "")).replace('{"topk_ratio": 0.1}', "null")}),
)

_AT = f"{ZERO}/zenflow"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The section beside stage and device."""
    view = view_of(doc, context)
    fact, stage, device = view.fact(_AT), view.stage, offload_device(view, OPTIMIZER)
    if not fact.is_known or not isinstance(fact.get(), dict) or is_newer_than(_AT, view.version):
        return
    if stage.get_or(3) not in (0, 1, 2):
        return
    if stage.get() == 0:
        lacks, end = "ZeRO is off", "the first step stops with an `AttributeError`"
    elif device.is_absent or device.get_or("") == "none":
        lacks, end = "none is", "every rank stops with a `ValueError`"
    else:
        return
    yield META.finding(
        doc.key(_AT),
        f"ZenFlow needs an optimizer offloaded to the CPU at ZeRO stage 1 or 2, but {lacks}: {end}",
        hint='Add `"offload_optimizer": {"device": "cpu"}` at stage 1 or 2, or delete `zenflow`',
        related=tuple(place.labelled(f"stage {stage.get()}") for place in stage.origins),
        pointer=_AT,
        facts={"with": f"{ZERO}/stage /optimizer"},
    )
