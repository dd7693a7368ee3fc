"""AutoEP settings that do not go together.

**What.** `expert_parallel.enabled` is true and a value is none of those that DeepSpeed knows (`score_apply`,
`combine_impl`, `row_weighting_impl`, `gate_up_impl`, `comm_backend`); or ZeRO stage 3 is used together with a sequence
parallel size above 1, quantized gradients, hpZ groups, or expert tensor parallelism.

**Why it hurts.** The engine stops with a `ValueError` (unknown values) or an `AssertionError` ("AutoEP with ZeRO
Stage 3 does not support ...") once it has found the MoE layers of the model.

**Fix.** One of the values that the message names; ZeRO stage 1 or 2, or without the feature.

**When it stays quiet.** `enabled` false, absent or unknown; DeepSpeed before 0.19.2, which does not know the section.
The combinations with ZeRO-3 are warnings, because they show on a model with MoE layers only.

**Evidence.** `validate_autoep_config` in `deepspeed/module_inject/auto_ep_config.py`,
`_validate_zero3_moe_compatibility` in `deepspeed/runtime/engine.py`, DeepSpeed 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL176",
    name="expert-parallel-constraint",
    kind="config",
    severity=Severity.ERROR,
    summary="AutoEP settings that DeepSpeed refuses, or that ZeRO stage 3 does not support",
    versions=("deepspeed>=0.19.2",),
    depends_on_run=True,
    needs=("/expert_parallel/enabled",),
)

_DS = (
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},\n'
    ' "zero_optimization": {"stage": %s},\n "expert_parallel": {"enabled": true%s}}\n'
)

EXAMPLES = (
    bad("no such value", {"ds.json": _DS % (2, ', "combine_impl": "sum"')}, "ds.json:3 error"),
    bad(
        "hpZ groups at stage 3",
        {"ds.json": _DS % ('3, "zero_hpz_partition_size": 8, "stage3_gather_16bit_weights_on_model_save": true', "")},
        "ds.json:2 warning",
    ),
    good("a known value", {"ds.json": _DS % (2, ', "combine_impl": "weighted_sum"')}),
    good(
        "off",
        {
            "ds.json": (_DS % (2, ', "combine_impl": "sum"')).replace(
                '"enabled": true, "comb', '"enabled": false, "comb'
            )
        },
    ),
)

_SECTION = "/expert_parallel"
_CHOICES = {
    "score_apply": ("auto", "pre", "post"),
    "combine_impl": ("auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"),
    "row_weighting_impl": ("auto", "eager", "fused"),
    "gate_up_impl": ("separate", "fused"),
    "comm_backend": ("comm", "deepep"),
}
_NOT_AT_STAGE_3 = {
    "/sequence_parallel_size": "sequence parallelism",
    "/zero_optimization/zero_hpz_partition_size": "hpZ groups",
    f"{_SECTION}/expert_tensor_parallel_size": "expert tensor parallelism",
}


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Values, then combinations with stage 3."""
    view = view_of(doc, context)
    if view.fact(f"{_SECTION}/enabled").get_or(None) is not True or view.runs(">=0.19.2") == "no":
        return
    for key, choices in _CHOICES.items():
        # "auto" is a value of its own here: no Trainer fills the section.
        value = view.raw(f"{_SECTION}/{key}")
        if isinstance(value, str) and value not in choices:
            listed = ", ".join(f'"{choice}"' for choice in choices)
            yield META.finding(
                doc.value(f"{_SECTION}/{key}"),
                f"`expert_parallel.{key}` `{value}` is not known to DeepSpeed: the engine stops with a `ValueError`",
                hint=f"Write one of {listed}",
                pointer=f"{_SECTION}/{key}",
            )
    if view.stage.get_or(0) == 3:
        yield from _at_stage_3(view)


def _at_stage_3(view: ConfigView) -> Iterator[Finding]:
    clashes = [(p, what) for p, what in _NOT_AT_STAGE_3.items() if view.number(p).get_or(1) > 1]
    gradients = "/zero_optimization/zero_quantized_gradients"
    if view.flag(gradients).get_or(False):
        clashes.append((gradients, "quantized gradients"))
    for pointer, what in clashes:
        yield META.finding(
            view.value(pointer),
            f"AutoEP with ZeRO stage 3 does not support {what}: the engine of an MoE model stops with an "
            "`AssertionError`",
            hint="Choose ZeRO stage 1 or 2, or drop the setting",
            related=(view.value(f"{_SECTION}/enabled", "expert parallelism is on"),),
            severity=Severity.WARNING,
            pointer=pointer,
        )
