"""No ZeRO section where the Trainer or accelerate need one.

**What.** A config that transformers or accelerate read, without `zero_optimization`.

**Why it hurts.** Plain DeepSpeed takes stage 0 then. accelerate's plugin, through which the Trainer goes as well,
stops with `ValueError: Please specify the ZeRO optimization config in the DeepSpeed config`.

**Fix.** `--fix` adds `"zero_optimization": {"stage": 0}`, which is what plain DeepSpeed does; choose another stage if
you want memory saved.

**When it stays quiet.** A config for DeepSpeed's autotuner, which adds the section. Plain DeepSpeed, Lightning, and
where it is not known who reads the config.

**Evidence.** `DeepSpeedPlugin.__post_init__` in `accelerate/utils/dataclasses.py`; run with a Trainer of transformers
5.23 and accelerate 1.15.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.deepspeed.config import top_of
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import insert_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL134",
    name="zero-section-missing",
    kind="config",
    severity=Severity.ERROR,
    summary="No `zero_optimization` in a config for the Trainer or accelerate, which stop without it",
    fix="safe",
    consumers=("hf", "accelerate"),
    depends_on_run=True,
)

_DS = """\
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": "auto"}
}
"""
_FIXED = _DS.replace('"auto"}\n', '"auto"},\n  "zero_optimization": {"stage": 0}\n')

EXAMPLES = (
    bad("the Trainer stops", {"ds.json": _DS}, "ds.json:1", fixed={"ds.json": _FIXED}),
    good("stage 0 is a section too", {"ds.json": _FIXED}),
    good("plain DeepSpeed takes stage 0", {"ds.json": _DS.replace('"auto"', "8").replace("bf16", "_bf16")}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The section is certainly not there."""
    view = view_of(doc, context)
    pointer = "/zero_optimization"
    if not view.is_trainer or doc.has("/autotuning") or doc.has(pointer) or not view.fact(pointer).is_absent:
        return
    reader = "the transformers Trainer" if view.consumer == "hf" else "accelerate"
    edits = insert_member(doc, "", "zero_optimization", '{"stage": 0}')
    yield META.finding(
        top_of(doc),
        f"`zero_optimization` is missing: {reader} stops with `ValueError: Please specify the ZeRO optimization "
        "config`",
        hint='Add `"zero_optimization": {"stage": 0}`, or the stage that you want',
        fix=Fix('Add `"zero_optimization": {"stage": 0}`', edits) if edits else None,
        pointer="",
    )
