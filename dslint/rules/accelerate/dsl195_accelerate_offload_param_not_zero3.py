"""`offload_param_device` in an accelerate config below ZeRO stage 3.

**What.** Parameters leave the GPU only at stage 3, where they are split. At stages 0 to 2 DeepSpeed ignores the
setting.

**Why it hurts.** The memory that it was to save is needed, silently; the run that was planned for the small GPU
stops with out-of-memory.

**Fix.** `zero_stage: 3`, or delete the line.

**When it stays quiet.** The device `none`; stage 3; a stage that a flag of the command chooses or that cannot be
read.

**Evidence.** `accelerate/utils/dataclasses.py` (`DeepSpeedPlugin`) writes it into the config;
`deepspeed/runtime/engine.py` (`_configure_zero_optimizer`) hands it on at stage 3 only.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL195",
    name="accelerate-offload-param-not-zero3",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="`offload_param_device` has no effect below ZeRO stage 3",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  offload_optimizer_device: cpu
  offload_param_device: cpu
  zero_stage: 2
"""

EXAMPLES = (
    bad("stage 2", {"zero2.yaml": _FILE}, "zero2.yaml:7"),
    good("stage 3", {"zero3.yaml": _FILE.replace("e: 2", "e: 3\n  zero3_save_16bit_model: true")}),
    good("the optimizer alone", {"zero2.yaml": _FILE.replace("param_device: cpu", "param_device: none")}),
    good("the command chooses stage 3", {
        "zero2.yaml": _FILE,
        "run.sh": "accelerate launch --config_file zero2.yaml --zero_stage 3 --zero3_save_16bit_model true train.py\n",
    }),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Device and stage."""
    view = view_of(doc, context)
    device, stage = view.stated("offload_param_device"), view.stage
    if str(device.get_or("none")).lower() not in ("cpu", "nvme") or stage.get_or(3) == 3:
        return
    pointer = view.pointer("offload_param_device")
    yield META.finding(
        doc.value(pointer),
        f"`offload_param_device: {device.get()}` has no effect at ZeRO stage {stage.get()}: "
        "the parameters stay on the GPU",
        hint="Use stage 3, or delete the line",
        related=tuple(place.labelled(f"stage {stage.get()}") for place in stage.origins),
        severity=view.severity(Severity.WARNING),
        pointer=pointer,
    )
