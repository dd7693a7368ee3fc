"""ZeRO keys that the stage does not read.

**What.** `stage3_*` keys or `sub_group_size` below ZeRO stage 3, or `round_robin_gradients` at a stage that has none.

**Why it hurts.** It does not: the values have no effect, which is a surprise for who tunes them.

**Fix.** Delete them, or set the stage that they belong to.

**When it stays quiet.** One finding lists all keys of a config. Values that are `"auto"`, false or null, and a stage
that is not known.

**Evidence.** Run with DeepSpeed 0.19.8 on two ranks: the same losses with and without; `DeepSpeedEngine.
_configure_zero_optimizer` hands these keys to the optimizers of the other stages only.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL156",
    name="zero-key-of-another-stage",
    kind="config",
    severity=Severity.INFO,
    summary="ZeRO keys that have no effect at the stage of the config",
    depends_on_run=True,
)

_DS = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": %s,\n %s}}\n'
_SAVE = ', "stage3_gather_16bit_weights_on_model_save": true'

EXAMPLES = (
    bad(
        "keys of stage 3 at stage 2",
        {"ds.json": _DS % (2, '"stage3_max_live_parameters": 1e9, "sub_group_size": 1e9')},
        "ds.json:2 info",
    ),
    bad("round robin at stage 3", {"ds.json": _DS % (3, '"round_robin_gradients": true' + _SAVE)}, "ds.json:2 info"),
    good("keys of stage 3 at stage 3", {"ds.json": _DS % (3, '"sub_group_size": 1e9' + _SAVE)}),
    good("left to transformers", {"ds.json": _DS % (2, '"stage3_prefetch_bucket_size": "auto"')}),
    good("round robin at stage 2", {"ds.json": _DS % (2, '"round_robin_gradients": true')}),
)

_SECTION = "/zero_optimization"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """One finding for all keys of the other stages."""
    view = view_of(doc, context)
    section = view.raw(_SECTION)
    if not view.stage.is_known or not isinstance(section, dict):
        return
    stage = view.stage.get()
    idle = [key for key in section if _is_of_stage_3(key) and stage != 3 and _is_set(view, key)]
    if stage in (0, 3) and view.flag(f"{_SECTION}/round_robin_gradients").get_or(False):
        idle.append("round_robin_gradients")
    if not idle:
        return
    names = ", ".join(f"`{key}`" for key in idle)
    wanted = "1 and 2" if idle == ["round_robin_gradients"] else "3"
    yield META.finding(
        view.key(f"{_SECTION}/{idle[0]}"),
        f"ZeRO stage {stage} does not read {names}: setting it has no effect",
        hint=f"Delete the keys of stage {wanted}, or set the stage",
        related=tuple(view.key(f"{_SECTION}/{key}", "no effect either") for key in idle[1:]),
        pointer=f"{_SECTION}/{idle[0]}",
        facts={"with": f"{_SECTION}/stage"},
    )


def _is_of_stage_3(key: str) -> bool:
    return key.startswith("stage3_") or key == "sub_group_size"


def _is_set(view: ConfigView, key: str) -> bool:
    fact = view.fact(f"{_SECTION}/{key}")
    return fact.is_known and fact.get() is not False
