"""Buckets of a billion elements.

**What.** `reduce_bucket_size` or `allgather_bucket_size` of 1e9 elements or more. With `overlap_comm` ZeRO holds the
bucket for reduction twice.

**Why it hurts.** Each buffer costs its elements times two bytes in 16 bit: 1e9 is 2 GB, and 4 GB with `overlap_comm`,
on every GPU, beside the model.

**Fix.** Write 2e8 to 5e8.

**When it stays quiet.** It is off unless selected: who has the memory may use it. From 2e9 elements on it is a warning.

**Evidence.** `setup_buckets` in `deepspeed/runtime/zero/stage_1_and_2.py` (read): one buffer of `reduce_bucket_size`
elements, and a second one where communication overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL163",
    name="bucket-huge",
    kind="config",
    severity=Severity.INFO,
    summary="Buckets that take gigabytes of every GPU",
    optional=True,
    no_experiment="used memory is not a wrong result",
    needs=("/zero_optimization/reduce_bucket_size", "/zero_optimization/allgather_bucket_size"),
)

_DS = (
    '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": false,\n'
    ' "reduce_bucket_size": %s}}\n'
)

EXAMPLES = (
    bad("two gigabytes", {"ds.json": _DS % "1e9"}, "ds.json:2 info"),
    bad("twenty gigabytes", {"ds.json": _DS % "1e10"}, "ds.json:2 warning"),
    good("the default", {"ds.json": _DS % "5e8"}),
    good("left to transformers", {"ds.json": _DS % '"auto"'}),
)

_LARGE, _HUGE = 1e9, 2e9


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The two sizes."""
    view = view_of(doc, context)
    if view.stage.get_or(0) not in (1, 2):
        return
    for name in ("reduce_bucket_size", "allgather_bucket_size"):
        pointer = f"/zero_optimization/{name}"
        size = view.number(pointer)
        if not size.is_known or size.get() < _LARGE:
            continue
        twice = name.startswith("reduce") and view.flag("/zero_optimization/overlap_comm").get_or(False)
        gigabytes = size.get() * (4 if twice else 2) / 1e9
        yield META.finding(
            view.value(pointer),
            f"`{name}` is {size.get():g} elements: its buffers take up to {gigabytes:g} GB of every GPU in 16 bit"
            + (", since `overlap_comm` needs two" if twice else ""),
            hint="Write 2e8 to 5e8",
            severity=Severity.WARNING if size.get() >= _HUGE else None,
            pointer=pointer,
        )
