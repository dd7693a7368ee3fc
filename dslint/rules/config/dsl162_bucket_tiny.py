"""Buckets of a few thousand elements.

**What.** `reduce_bucket_size` or `allgather_bucket_size` below a million elements at ZeRO stage 1, 2 or 3.

**Why it hurts.** A model of a billion parameters then needs thousands of collectives a step, each with its own latency:
the GPUs wait for the network. A number such as 500 is often meant as megabytes; the unit is elements.

**Fix.** Delete the key (5e8 is the default), or write some 1e8.

**When it stays quiet.** `"auto"`, stage 0, sizes of a million and more.

**Evidence.** `reduce_bucket_size` in `deepspeed/runtime/zero/config.py` ("Number of elements");
https://github.com/deepspeedai/DeepSpeed/issues/5347, where a larger bucket hid a race. The result does not change: it
is an information.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL162",
    name="bucket-tiny",
    kind="config",
    severity=Severity.INFO,
    summary="Buckets of less than a million elements: thousands of collectives a step",
    references=("https://github.com/deepspeedai/DeepSpeed/issues/5347",),
    no_experiment="how long a collective takes depends on the network",
    needs=("/zero_optimization/reduce_bucket_size", "/zero_optimization/allgather_bucket_size"),
)

_DS = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": %s,\n "%s": %s}}\n'

EXAMPLES = (
    bad("five hundred elements", {"ds.json": _DS % (2, "reduce_bucket_size", 500)}, "ds.json:2 info"),
    bad("when weights are gathered", {"ds.json": _DS % (1, "allgather_bucket_size", "5e5")}, "ds.json:2 info"),
    good("the default", {"ds.json": _DS % (2, "reduce_bucket_size", "5e8")}),
    good("without ZeRO", {"ds.json": _DS % (0, "reduce_bucket_size", 500)}),
    good("left to transformers", {"ds.json": _DS % (2, "reduce_bucket_size", '"auto"')}),
)

_SMALL = 1_000_000


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The two sizes; stage 3 has no bucket for gathering."""
    view = view_of(doc, context)
    stage = view.stage.get_or(0)
    for name in ("reduce_bucket_size", "allgather_bucket_size"):
        pointer = f"/zero_optimization/{name}"
        size = view.number(pointer)
        if not stage or not size.is_known or not 0 < size.get() < _SMALL:
            continue
        if stage == 3 and name.startswith("allgather"):
            continue
        yield META.finding(
            view.value(pointer),
            f"`{name}` is {size.get():g} elements: a billion parameters take {1e9 / size.get():,.0f} collectives"
            " per step",
            hint="Delete the key, or write about 1e8: the unit is elements, neither bytes nor megabytes",
            pointer=pointer,
        )
