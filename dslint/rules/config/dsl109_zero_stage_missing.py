"""`zero_optimization` with settings and no stage.

**What.** The section holds keys such as `overlap_comm` or `offload_optimizer`, and no `stage`.

**Why it hurts.** The stage is 0 by default: ZeRO is off, every rank holds the whole model, gradients and optimizer
state, and all other keys of the section do nothing. No log line says so. accelerate, and the Trainer through it, ask
for the stage again when the model is saved, and stop there with `KeyError: 'stage'`.

**Fix.** Write the stage that is meant, or `"stage": 0` where ZeRO should be off.

**When it stays quiet.** An empty section; a section whose stage only a run knows; a misspelled `stage`, which other
rules report.

**Evidence.** `DeepSpeedZeroConfig.stage` in `deepspeed/runtime/zero/config.py`; `Accelerator.get_state_dict` in
`accelerate/accelerator.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.keys import misspelled, renamed
from dslint.model.deepspeed.view import view_of
from dslint.model.deepspeed.zerokeys import SECTION
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL109",
    name="zero-stage-missing",
    kind="config",
    severity=Severity.WARNING,
    summary="ZeRO settings without a stage: ZeRO is off and they do nothing",
)

_NONE = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {
    "reduce_bucket_size": 500000000,
    "overlap_comm": false
  }
}
"""

EXAMPLES = (
    bad("settings and no stage", {"ds.json": _NONE}, "ds.json:3 warning"),
    good("a stage", {"ds.json": _NONE.replace('"reduce', '"stage": 1,\n    "reduce')}),
    good("ZeRO is off, and the file says so", {"ds.json": _NONE.replace('"reduce', '"stage": 0,\n    "reduce')}),
    good("nothing is requested", {"ds.json": '{"train_batch_size": 8, "zero_optimization": {}}\n'}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """A section that is an object with members and has no stage."""
    view = view_of(doc, context)
    pointer = f"{SECTION}/stage"
    section = view.fact(SECTION).get_or(None)
    if not isinstance(section, dict) or doc.has(pointer) or not view.fact(pointer).is_absent:
        return
    keys = [key for key in section if not key.startswith("_")]
    if not keys or any("stage" in (misspelled(key, SECTION), renamed(key, SECTION)) for key in keys):
        return
    named = ", ".join(f"`{key}`" for key in keys[:3]) + (" and others" if len(keys) > 3 else "")
    yield META.finding(
        doc.key(SECTION),
        f"`zero_optimization` has no `stage` (default 0): ZeRO is off, and {named} {'do' if len(keys) > 1 else 'does'}"
        " nothing",
        hint="Write the intended `stage`: 1, 2 or 3, or 0 to say that ZeRO is off",
        pointer=SECTION,
    )
