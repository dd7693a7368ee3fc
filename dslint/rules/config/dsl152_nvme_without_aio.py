"""Offload to NVMe with the default settings for asynchronous files.

**What.** Parameters or optimizer states go to NVMe at ZeRO stage 3 and the config has no `aio` section.

**Why it hurts.** DeepSpeed takes blocks of 1 MiB, a queue of 8 and one thread; most disks are several times faster with
other values.

**Fix.** Measure with `ds_io` or `ds_nvme_tune`, and write what it prints into `aio`.

**When it stays quiet.** It is off unless selected, since slow is not wrong.

**Evidence.** `get_aio_config` in `deepspeed/runtime/swap_tensor/aio_config.py` (read).
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
    code="DSL152",
    name="nvme-without-aio",
    kind="config",
    severity=Severity.INFO,
    summary="Offload to NVMe with default `aio` settings, which suit few disks",
    depends_on_run=True,
    optional=True,
    no_experiment="how fast files are read depends on the disk",
    needs=("/zero_optimization/offload_optimizer/device", "/zero_optimization/offload_param/device"),
)

_DS = (
    '{"train_batch_size": 8, "bf16": {"enabled": true}, %s"zero_optimization": {"stage": 3,\n'
    ' "offload_param": {"device": "%s", "nvme_path": "/nvme"},\n'
    ' "stage3_gather_16bit_weights_on_model_save": true}}\n'
)

EXAMPLES = (
    bad("nothing is said", {"ds.json": _DS % ("", "nvme")}, "ds.json:2 info"),
    good("measured", {"ds.json": _DS % ('"aio": {"block_size": 1048576, "queue_depth": 32}, ', "nvme")}),
    good("to the CPU", {"ds.json": _DS % ("", "cpu")}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """A disk and no section."""
    view = view_of(doc, context)
    if view.stage.get_or(0) != 3 or not view.fact("/aio").is_absent:
        return
    for section in (PARAM, OPTIMIZER):
        if offload_device(view, section).get_or("") == "nvme":
            yield META.finding(
                view.value(f"{section}/device"),
                f"`{section.rpartition('/')[2]}` goes to NVMe without an `aio` section: queue depth 8 and one"
                " thread are "
                "slow on most disks",
                hint="Measure with `ds_nvme_tune` and write its result into `aio`",
                pointer=f"{section}/device",
            )
            return
