"""An offload section at a ZeRO stage that does not use it.

**What.** `offload_param` below ZeRO stage 3, `offload_optimizer` at stage 0, or `offload_optimizer` to NVMe below
stage 3.

**Why it hurts.** Nothing raises, and the memory that the file asks to save is not saved: below stage 3 no parameter is
offloaded; at stage 0 the states stay where the model is while Adam becomes the slow `DeepSpeedCPUAdam`; at stages 1
and 2 "nvme" means the memory of the CPU, and the disk is not used.

**Fix.** Set `stage` to 3, or delete the section.

**When it stays quiet.** Device `none`, devices and stages that accelerate fills in, a stage that nobody can read.

**Evidence.** Run with DeepSpeed 0.19.8 on two ranks: `DeepSpeedEngine._configure_zero_optimizer` hands `offload_param`
to the optimizer of stage 3 only; `DeepSpeedZeroOptimizer` (stages 1 and 2) sets `cpu_offload` for every device that is
not `none`, starts without an `nvme_path` and writes no file.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.offload import OPTIMIZER, PARAM, device_pointer, is_offloaded, offload_device
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL150",
    name="offload-below-its-stage",
    kind="config",
    severity=Severity.WARNING,
    summary="An offload section that the ZeRO stage does not use",
    depends_on_run=True,
    needs=(
        "/zero_optimization/offload_optimizer/device",
        "/zero_optimization/offload_param/device",
        "/zero_optimization/cpu_offload",
        "/zero_optimization/cpu_offload_param",
    ),
)

_DS = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {\n "stage": %s,\n %s}}\n'
_GATHER = ', "stage3_gather_16bit_weights_on_model_save": true'

EXAMPLES = (
    bad("parameters at stage 2", {"ds.json": _DS % (2, '"offload_param": {"device": "cpu"}')}, "ds.json:3"),
    bad("optimizer states at stage 0", {"ds.json": _DS % (0, '"offload_optimizer": {"device": "cpu"}')}, "ds.json:3"),
    bad(
        "states on a disk at stage 2",
        {"ds.json": _DS % (2, '"offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}')},
        "ds.json:3",
    ),
    good("optimizer states at stage 2", {"ds.json": _DS % (2, '"offload_optimizer": {"device": "cpu"}')}),
    good("parameters at stage 3", {"ds.json": _DS % (3, '"offload_param": {"device": "cpu"}' + _GATHER)}),
    good("switched off", {"ds.json": _DS % (1, '"offload_param": {"device": "none"}')}),
    good("accelerate fills the device", {"ds.json": _DS % (2, '"offload_param": {"device": "auto"}')}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both sections against the stage."""
    view = view_of(doc, context)
    if not view.stage.is_known or view.stage.get() == 3:
        return
    stage = view.stage.get()
    device = offload_device(view, OPTIMIZER)
    if is_offloaded(device) and stage == 0:
        told = "nothing is partitioned or offloaded, and Adam becomes the slower `DeepSpeedCPUAdam`"
        yield _finding(view, OPTIMIZER, device.get(), told, "Set `stage` to 1 or higher, or delete the section")
    elif device.get_or("") == "nvme":
        told = "the states stay in CPU memory and are never written to disk"
        yield _finding(view, OPTIMIZER, "nvme", told, "Set `stage` to 3, or `device` to `cpu`")
    device = offload_device(view, PARAM)
    if is_offloaded(device):
        told = "it is silently ignored, and every rank keeps all parameters on its GPU"
        yield _finding(view, PARAM, device.get(), told, "Set `stage` to 3, or delete the section")


def _finding(view: ConfigView, section: str, device: str, told: str, hint: str) -> Finding:
    pointer = device_pointer(view, section)
    stage = "/zero_optimization/stage"
    return META.finding(
        view.value(pointer),
        f"`{section.rpartition('/')[2]}` to `{device}` at ZeRO stage {view.stage.get()}: {told}",
        hint=hint,
        related=(view.value(stage, "the stage"),) if view.has(stage) else (),
        pointer=pointer,
        facts={"with": stage},
    )
