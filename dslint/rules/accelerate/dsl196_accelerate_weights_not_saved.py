"""ZeRO stage 3 in an accelerate config without `zero3_save_16bit_model: true`.

**What.** At stage 3 every rank holds a part of each weight. accelerate gathers them for a save only when
`zero3_save_16bit_model` is true; its default is false.

**Why it hurts.** `accelerator.get_state_dict` and the Trainer cannot write the weights: the run ends with a
checkpoint that only DeepSpeed reads, or with a `ValueError` that asks for
`stage3_gather_16bit_weights_on_model_save`.

**Fix.** `zero3_save_16bit_model: true` (unsafe fix: rank 0 then needs host memory for the whole model at a save).

**When it stays quiet.** Other stages; a DeepSpeed config file, which `z3-gather-missing` judges; a flag of the
command that says it or cannot be read.

**Evidence.** `accelerate/accelerator.py` (`Accelerator.get_state_dict`); `accelerate/utils/dataclasses.py`
(`DeepSpeedPlugin`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.view import SECTION, view_of
from dslint.model.context import Context
from dslint.model.yamledits import insert_member, replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL196",
    name="accelerate-weights-not-saved",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="ZeRO stage 3 under accelerate without `zero3_save_16bit_model`: no usable weights are saved",
    fix="unsafe",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  zero3_init_flag: true
  zero_stage: 3  # large model
use_cpu: false
"""
_SAVED = _FILE.replace("large model\n", "large model\n  zero3_save_16bit_model: true\n")

EXAMPLES = (
    bad("not set", {"zero3.yaml": _FILE}, "zero3.yaml:7", fixed={"zero3.yaml": _SAVED}),
    bad("switched off", {"zero3.yaml": _SAVED.replace("16bit_model: true", "16bit_model: false")}, "zero3.yaml:8",
        fixed={"zero3.yaml": _SAVED}),
    good("gathered", {"zero3.yaml": _SAVED}),
    good("stage 2", {"zero2.yaml": _FILE.replace("e: 3", "e: 2").replace("flag: true", "flag: false")}),
    good("the command says it", {
        "zero3.yaml": _FILE,
        "run.sh": "accelerate launch --config_file zero3.yaml --zero3_save_16bit_model true train.py\n",
    }),
)  # fmt: skip

_NAME = "zero3_save_16bit_model"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Stage 3 and the switch."""
    view = view_of(doc, context)
    saved = view.fact(_NAME)
    if view.stage.get_or(0) != 3 or saved.is_unknown or not view.flag(_NAME).is_absent:
        return
    if saved.is_known and str(saved.get()).lower() == "true":
        return
    pointer = view.pointer(_NAME)
    if saved.is_absent and not doc.has(pointer):
        edits, at = insert_member(doc, SECTION, _NAME, "true"), view.key(view.pointer("zero_stage"))
    else:
        edits, at = replace_value(doc, pointer, "true"), doc.value(pointer)
    yield META.finding(
        at,
        f"`{_NAME}` is not true at ZeRO stage 3: the saved model has no usable weights",
        hint=f"Set `{_NAME}: true` if this run saves its model: stage 3 splits every weight over the ranks",
        fix=Fix(f"Set `{_NAME}: true`", edits, Safety.UNSAFE) if edits else None,
        severity=view.severity(Severity.WARNING),
        pointer=pointer if doc.has(pointer) else f"{SECTION}/zero_stage",
        facts={"gather": None if saved.is_absent else False},
    )
