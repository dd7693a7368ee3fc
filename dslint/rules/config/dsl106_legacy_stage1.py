"""`legacy_stage1`: an implementation of ZeRO stage 1 that DeepSpeed no longer has.

**What.** `zero_optimization.legacy_stage1` is true.

**Why it hurts.** The config is accepted, the model is built, and then every rank stops in `deepspeed.initialize` with
`Exception: The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9`, at stages 1, 2 and 3.

**Fix.** Delete the key: `--fix` does.

**When it stays quiet.** The switch is off, or ZeRO is off (stage 0), where nobody looks at it.

**Evidence.** `DeepSpeedEngine._configure_zero_optimizer` in `deepspeed/runtime/engine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.deepspeed.zerokeys import SECTION
from dslint.model.edits import delete_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL106",
    name="legacy-stage1",
    kind="config",
    severity=Severity.ERROR,
    summary="`legacy_stage1`, on which `deepspeed.initialize` stops",
    fix="safe",
    versions=("deepspeed>=0.5.9",),
    needs=("/zero_optimization/legacy_stage1",),
)

_LEGACY = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {
    "stage": 1,
    "legacy_stage1": true
  }
}
"""
_POINTER = f"{SECTION}/legacy_stage1"

EXAMPLES = (
    bad(
        "the old stage 1",
        {"ds.json": _LEGACY},
        "ds.json:5 error",
        fixed={"ds.json": _LEGACY.replace(',\n    "legacy_stage1": true', "")},
    ),
    good("the switch is off", {"ds.json": _LEGACY.replace("true", "false")}),
    good("ZeRO is off", {"ds.json": _LEGACY.replace('"stage": 1', '"stage": 0')}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The switch, where ZeRO is on."""
    view = view_of(doc, context)
    stage = view.stage.get_or(0)
    if not view.flag(_POINTER).get_or(False) or stage not in (1, 2, 3):
        return
    edits = delete_member(doc, _POINTER)
    yield META.finding(
        doc.key(_POINTER),
        f"`legacy_stage1` is on at ZeRO stage {stage}: DeepSpeed removed it in 0.5.9, and `deepspeed.initialize`"
        " raises",
        hint="Delete `legacy_stage1`",
        fix=Fix("Delete `legacy_stage1`", edits) if edits else None,
        pointer=_POINTER,
        facts={"stage": stage},
    )
