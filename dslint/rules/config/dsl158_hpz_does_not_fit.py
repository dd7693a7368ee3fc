"""A second partition of ZeRO++ that does not fit the run.

**What.** `zero_hpz_partition_size` above 1 at ZeRO stage 3, with a world size that it does not divide, or together with
offload.

**Why it hurts.** Every rank of a world that is not a multiple of it stops with `AssertionError: ... is not divisible
by`. With offload, users report a loss of 0 and no gradient.

**Fix.** Set it to the number of GPUs of a node; with offload set it to 1.

**When it stays quiet.** Without a known world size; worlds smaller than the partition, to which DeepSpeed clamps it.

**Evidence.** `_create_zero_param_parallel_group` in `deepspeed/utils/groups.py`; run with DeepSpeed 0.19.8 on two ranks
(3 is clamped to 2). With offload: https://github.com/deepspeedai/DeepSpeed/issues/6926,
https://github.com/modelscope/ms-swift/issues/3697; on a CPU, where nothing is offloaded, both train alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.offload import OPTIMIZER, PARAM, is_offloaded, offload_device
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL158",
    name="hpz-does-not-fit",
    kind="config",
    severity=Severity.ERROR,
    summary="`zero_hpz_partition_size` that does not divide the world size, or that meets offload",
    versions=("deepspeed>=0.10.0",),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/6926",
        "https://github.com/modelscope/ms-swift/issues/3697",
    ),
    depends_on_run=True,
    needs=("/zero_optimization/zero_hpz_partition_size",),
)

_DS = (
    '{"train_batch_size": 48, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3,\n'
    ' "zero_hpz_partition_size": %s,\n "stage3_gather_16bit_weights_on_model_save": true%s}}\n'
)
_OFFLOAD = ', "offload_param": {"device": "cpu"}'

EXAMPLES = (
    bad("four ranks in groups of three", {"ds.json": _DS % (3, "")}, "ds.json:2 error", world_size=4),
    bad("with offload", {"ds.json": _DS % (8, _OFFLOAD)}, "ds.json:2 warning"),
    good("two nodes of four", {"ds.json": _DS % (4, "")}, world_size=8),
    good("nobody says how many ranks", {"ds.json": _DS % (3, "")}),
    good("no second partition", {"ds.json": _DS % (1, _OFFLOAD)}),
)

_POINTER = "/zero_optimization/zero_hpz_partition_size"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The size of the partition against world size and offload."""
    view = view_of(doc, context)
    size = view.number(_POINTER).get_or(1)
    if view.stage.get_or(0) != 3 or size <= 1:
        return
    world = context.world_size.get_or(0)
    if world > size and world % size:
        yield META.finding(
            view.value(_POINTER),
            f"`zero_hpz_partition_size` {size} does not divide the world size {world}: every rank stops with "
            "`AssertionError`",
            hint="Set it to the number of GPUs of a node",
            pointer=_POINTER,
            facts={"world": world, "shows": "groups"},
        )
    else:
        yield from _with_offload(view)


def _with_offload(view: ConfigView) -> Iterator[Finding]:
    for section in (PARAM, OPTIMIZER):
        if is_offloaded(offload_device(view, section)):
            yield META.finding(
                view.value(_POINTER),
                f"`zero_hpz_partition_size` with `{section.rpartition('/')[2]}`: users report a loss of 0 and no "
                "gradient, without an error",
                hint="Set `zero_hpz_partition_size` to 1, or do not offload",
                related=(view.key(section, "the offload"),),
                severity=Severity.WARNING,
                assumptions=(assumed("reported-by-users"),),
                pointer=_POINTER,
                facts={"shows": "gpu"},
            )
            return
