"""The optimizer of torch on the CPU, where DeepSpeed has a fast one.

**What.** `optimizer.params.torch_adam` is true and the optimizer is offloaded.

**Why it hurts.** DeepSpeed then makes a plain `torch.optim.AdamW`, whose steps run on the CPU. Its own
`DeepSpeedCPUAdam` uses vector instructions of the processor and all its cores, several times as fast: the GPUs wait for
each step.

**Fix.** Delete `torch_adam` (`--unsafe-fixes` does): DeepSpeed takes its own Adam for offloaded states.

**When it stays quiet.** No offload, `torch_adam` false, or a device that is not known.

**Evidence.** `get_optimizer_configuration` in `deepspeed/runtime/engine.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import class_name
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import delete_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL120",
    name="optimizer-torch-adam-offload",
    kind="config",
    severity=Severity.WARNING,
    summary="`torch_adam` with offload: the steps run in plain torch on the CPU, slowly",
    fix="unsafe",
    depends_on_run=True,
    needs=("/optimizer/params/torch_adam",),
)

_TEXT = """\
{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4%s}},
  "zero_optimization": {"stage": 2%s}}
"""
_TORCH, _CPU = ', "torch_adam": true', ', "offload_optimizer": {"device": "cpu"}'

EXAMPLES = (
    bad("both", {"ds.json": _TEXT % (_TORCH, _CPU)}, "ds.json:1 warning", fixed={"ds.json": _TEXT % ("", _CPU)}),
    good("no offload", {"ds.json": _TEXT % (_TORCH, "")}),
    good("DeepSpeed's own Adam", {"ds.json": _TEXT % ("", _CPU)}),
    good("offload to nowhere", {"ds.json": _TEXT % (_TORCH, _CPU.replace("cpu", "none"))}),
)

_SWITCH, _DEVICE = "/optimizer/params/torch_adam", "/zero_optimization/offload_optimizer/device"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The switch beside the device."""
    view = view_of(doc, context)
    switch, device = view.fact(_SWITCH), view.word(_DEVICE)
    if class_name(view, "optimizer").get_or("") not in ("adam", "adamw") or switch.get_or(False) is not True:
        return
    if device.get_or("") in ("cpu", "nvme") and view.stage.get_or(0) in (1, 2, 3):
        edits = delete_member(doc, _SWITCH)
        yield META.finding(
            doc.key(_SWITCH),
            f"`torch_adam` is on and the optimizer is offloaded to `{device.get()}`: the steps run in plain torch on "
            "the CPU, slowly",
            hint="Delete `torch_adam`: DeepSpeed takes its own Adam for offloaded states",
            related=(doc.value(_DEVICE, "offloaded here"),),
            fix=Fix("Delete `torch_adam`", edits, Safety.UNSAFE) if edits else None,
            pointer=_SWITCH,
            facts={"with": _DEVICE + " /optimizer/type /zero_optimization/stage"},
        )
