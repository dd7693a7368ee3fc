"""Thresholds of ZeRO-3 that cancel each other.

**What.** At stage 3: `sub_group_size` of 1e12 or more, `stage3_max_live_parameters` below
`stage3_param_persistence_threshold`, or `stage3_prefetch_bucket_size` above `stage3_max_live_parameters`.

**Why it hurts.** Results are right. A huge `sub_group_size` means that nothing is tiled: the optimizer step needs the
memory of all states at once. The other two make DeepSpeed gather parameters that it must release before they are used.

**Fix.** Delete the key: the defaults (1e9, 1e5, 5e7) fit each other.

**When it stays quiet.** Values that are `"auto"` or missing; other stages.

**Evidence.** Run with DeepSpeed 0.19.8 on two ranks (`sub_group_size` of 0 and 1e12 are accepted and train alike);
`PartitionedParameterCoordinator` in `deepspeed/runtime/zero/partitioned_param_coordinator.py` (read).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL166",
    name="zero3-thresholds-cancel",
    kind="config",
    severity=Severity.INFO,
    summary="Thresholds of ZeRO-3 that make each other void",
    no_experiment="memory and traffic change, results do not",
    needs=("/zero_optimization/sub_group_size", "/zero_optimization/stage3_max_live_parameters"),
)

_DS = (
    '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3,\n %s,\n'
    ' "stage3_gather_16bit_weights_on_model_save": true}}\n'
)

EXAMPLES = (
    bad("nothing is tiled", {"ds.json": _DS % '"sub_group_size": 1e15'}, "ds.json:2 info"),
    bad(
        "prefetched in vain",
        {"ds.json": _DS % '"stage3_prefetch_bucket_size": 5e9, "stage3_max_live_parameters": 1e9'},
        "ds.json:2 info",
    ),
    good("the defaults", {"ds.json": _DS % '"sub_group_size": 1e9, "stage3_max_live_parameters": 1e9'}),
    good("left to transformers", {"ds.json": _DS % '"stage3_prefetch_bucket_size": "auto", "sub_group_size": 1e9'}),
)

_SECTION = "/zero_optimization"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The three relations."""
    view = view_of(doc, context)
    if view.stage.get_or(0) != 3:
        return
    if view.number(f"{_SECTION}/sub_group_size").get_or(0) >= 1e12:
        told = "no model is that large, so the optimizer step is not tiled and needs all states at once"
        yield _finding(view, "sub_group_size", told)
    live = view.number(f"{_SECTION}/stage3_max_live_parameters")
    for key, told in (
        ("stage3_param_persistence_threshold", "parameters that should stay are released anyway"),
        ("stage3_prefetch_bucket_size", "prefetched parameters are released before use"),
    ):
        value = view.number(f"{_SECTION}/{key}")
        if live.is_known and value.is_known and value.get() > live.get():
            yield _finding(view, key, f"`stage3_max_live_parameters` is only {live.get():g}, and {told}")


def _finding(view: ConfigView, key: str, told: str) -> Finding:
    pointer = f"{_SECTION}/{key}"
    return META.finding(
        view.value(pointer),
        f"`{key}` is {view.number(pointer).get():g}: {told}",
        hint="Delete the key: the defaults fit each other",
        pointer=pointer,
    )
