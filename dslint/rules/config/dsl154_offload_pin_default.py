"""Offload whose pages are pinned after an upgrade.

**What.** An offload section without `pin_memory`, in a project whose DeepSpeed range has releases on both sides of
0.19.5, or is older than it.

**Why it hurts.** 0.19.5 changed the default from false to true: offloaded states become memory that cannot be paged
out. Nodes with little memory or a low `memlock` limit then fail to allocate it.

**Fix.** Say `pin_memory`, true or false.

**When it stays quiet.** It is off unless selected. Without a stated version, with 0.19.5 or later only, where
`pin_memory` is said, device `none`.

**Evidence.** https://github.com/deepspeedai/DeepSpeed/pull/8207, `deepspeed/runtime/zero/offload_config.py` (read).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_origin
from dslint.model.deepspeed.offload import OPTIMIZER, PARAM, is_offloaded, offload_device
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL154",
    name="offload-pin-default",
    kind="config",
    severity=Severity.INFO,
    summary="Offloaded memory is pinned by default since DeepSpeed 0.19.5",
    versions=("deepspeed>=0.19.5",),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/8207",),
    depends_on_run=True,
    optional=True,
    no_experiment="pinned memory needs a GPU",
    needs=("/zero_optimization/offload_optimizer/device", "/zero_optimization/offload_param/device"),
)

_DS = (
    '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2,\n'
    ' "offload_optimizer": {"device": "%s"%s}}}\n'
)

EXAMPLES = (
    bad(
        "a range over the change",
        {"ds.json": _DS % ("cpu", "")},
        "ds.json:2 info",
        deepspeed_version=">=0.18",
    ),
    good("said", {"ds.json": _DS % ("cpu", ', "pin_memory": true')}, deepspeed_version=">=0.18"),
    good("nothing is offloaded", {"ds.json": _DS % ("none", "")}, deepspeed_version=">=0.18"),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both sections."""
    view = view_of(doc, context)
    if not view.version.is_known or view.runs(">=0.19.5") == "yes":
        return
    for section in (OPTIMIZER, PARAM):
        pointer = f"{section}/pin_memory"
        if not view.has(section) or not is_offloaded(offload_device(view, section)):
            continue
        if view.fact(pointer).is_absent:
            yield META.finding(
                view.key(section),
                f"`{section.rpartition('/')[2]}` does not set `pin_memory`: its default is false before DeepSpeed "
                "0.19.5 and true since",
                hint="Set `pin_memory`",
                related=version_origin(view.version),
                pointer=section,
            )
