"""`zero3_init_flag: true` in an accelerate config of another ZeRO stage.

**What.** The flag builds the model split over the ranks (`deepspeed.zero.Init`), which is only possible at stage 3.

**Why it hurts.** `DeepSpeed Zero3 Init flag is only applicable for ZeRO Stage 3. Setting it to False.` Each rank then
builds the whole model, the host memory that was to be saved is needed after all.

**Fix.** `false` (safe fix: it is what runs), or `zero_stage: 3`.

**When it stays quiet.** Stage 3; a stage that is not known: a flag of the command, or a DeepSpeed config that is not
found.

**Evidence.** `accelerate/utils/dataclasses.py` (`DeepSpeedPlugin.__post_init__`), run with such a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact, unknown
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.accelerate.view import AccelerateView, view_of
from dslint.model.context import Context
from dslint.model.deepspeed.config import stage_of
from dslint.model.yamledits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL194",
    name="accelerate-init-flag-not-zero3",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="`zero3_init_flag: true` at another ZeRO stage: accelerate sets it to false",
    fix="safe",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  zero3_init_flag: true  # less host memory
  zero_stage: 2
"""
_FALSE = _FILE.replace("true ", "false ")
_BY_FILE = _FILE.replace("zero_stage: 2", "deepspeed_config_file: ds.json")
_DS = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'

EXAMPLES = (
    bad("stage 2", {"zero2.yaml": _FILE}, "zero2.yaml:6", fixed={"zero2.yaml": _FALSE}),
    bad("the default stage is 2", {"zero2.yaml": _FILE.replace("  zero_stage: 2\n", "")}, "zero2.yaml:6"),
    bad("the stage of the named config", {"zero2.yaml": _BY_FILE, "ds.json": _DS}, "zero2.yaml:6"),
    good("stage 3", {"zero3.yaml": _FILE.replace("e: 2", "e: 3\n  zero3_save_16bit_model: true")}),
    good("the named config is not found", {"zero2.yaml": _BY_FILE}),
    good("the command chooses the stage", {
        "zero2.yaml": _FILE,
        "run.sh": "accelerate launch --config_file zero2.yaml --zero_stage $STAGE train.py\n",
    }),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Flag and stage."""
    view = view_of(doc, context)
    stage = _stage(view)
    flag = view.truth("zero3_init_flag")
    if stage.get_or(3) == 3 or not flag.get_or(False) or not view.stated("zero3_init_flag").is_known:
        return
    pointer = view.pointer("zero3_init_flag")
    edits = replace_value(doc, pointer, "false")
    yield META.finding(
        doc.value(pointer),
        f"`zero3_init_flag` is ignored at ZeRO stage {stage.get()}: accelerate sets it to false, and every rank builds "
        "the whole model",
        hint="Write `false`, or use stage 3",
        related=tuple(place.labelled(f"stage {stage.get()}") for place in stage.origins),
        fix=Fix("Write `false`, which is what runs", edits) if edits else None,
        severity=view.severity(Severity.WARNING),
        pointer=pointer,
    )


def _stage(view: AccelerateView) -> Fact[int]:
    """The stage that the file states, or the DeepSpeed config that it names."""
    if view.is_deepspeed and view.config is not None:
        return stage_of(view.config)
    return view.stage if view.is_deepspeed else unknown("no DeepSpeed")
