"""Offload to NVMe without a path.

**What.** `offload_param` or `offload_optimizer` with device `nvme` and no `nvme_path`, at ZeRO stage 3.

**Why it hurts.** `deepspeed.initialize` stops on every rank: for parameters with `AssertionError: "nvme_path" in
DeepSpeed Config cannot be None`, for optimizer states with a bare `TypeError: expected str, bytes or os.PathLike
object, not NoneType`.

**Fix.** Give the section the `nvme_path` of a local disk that every node has.

**When it stays quiet.** At stages below 3, which use no disk (`offload-below-its-stage` says so); where the path or the
device is `"auto"` and accelerate may fill it.

**Evidence.** Run with DeepSpeed 0.19.8 on two ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.offload import OPTIMIZER, PARAM, offload_device
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL151",
    name="nvme-path-missing",
    kind="config",
    severity=Severity.ERROR,
    summary="Offload to NVMe without `nvme_path`: the engine does not start",
    depends_on_run=True,
    needs=("/zero_optimization/offload_optimizer/device", "/zero_optimization/offload_param/device"),
)

_DS = (
    '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {\n "stage": %s,\n %s,\n'
    ' "stage3_gather_16bit_weights_on_model_save": true}}\n'
)

EXAMPLES = (
    bad("parameters", {"ds.json": _DS % (3, '"offload_param": {"device": "nvme"}')}, "ds.json:3 error"),
    bad("optimizer states", {"ds.json": _DS % (3, '"offload_optimizer": {"device": "nvme"}')}, "ds.json:3 error"),
    good("with a path", {"ds.json": _DS % (3, '"offload_param": {"device": "nvme", "nvme_path": "/local"}')}),
    good("to the CPU", {"ds.json": _DS % (3, '"offload_param": {"device": "cpu"}')}),
    good(
        "accelerate fills the path",
        {"ds.json": _DS % (3, '"offload_param": {"device": "nvme", "nvme_path": "auto"}')},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both sections."""
    view = view_of(doc, context)
    if view.stage.get_or(0) != 3:
        return
    for section in (PARAM, OPTIMIZER):
        path = f"{section}/nvme_path"
        if offload_device(view, section).get_or("") != "nvme" or not view.fact(path).is_absent:
            continue
        if view.is_auto(path) and view.consumer not in ("deepspeed", "lightning"):
            continue
        name = section.rpartition("/")[2]
        raised = "`AssertionError`" if section == PARAM else "`TypeError`"
        yield META.finding(
            view.value(f"{section}/device"),
            f"`{name}` goes to NVMe, but `nvme_path` is missing: every rank stops with {raised}",
            hint="Add `nvme_path`, a folder on a local disk of every node",
            pointer=f"{section}/device",
            facts={"with": "/zero_optimization/stage"},
        )
