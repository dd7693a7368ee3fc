"""Two sizes of tensor parallelism that disagree.

**What.** `tensor_parallel.tp.tp_size` above 1 beside another `tensor_parallel.autotp_size`, or without one.

**Why it hurts.** DeepSpeed splits the model by `autotp_size`. Where both are above 1 and differ, the engine stops
with a `ValueError`. Where `autotp_size` is missing, 0 or 1, `tp_size` is ignored: every rank silently holds the whole
model.

**Fix.** Write the size as `autotp_size`, and leave `tp_size` out.

**When it stays quiet.** Equal sizes; a `tp_size` of 1; DeepSpeed before 0.16.4, which does not know the section.

**Evidence.** `_apply_autotp_partitioning` in `deepspeed/runtime/engine.py`; run with DeepSpeed 0.19.8: `tp_size` 4
alone makes an ordinary engine.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL179",
    name="tensor-parallel-size",
    kind="config",
    severity=Severity.WARNING,
    summary="`tp_size` without the same `autotp_size`: ignored, or refused",
    versions=("deepspeed>=0.16.4",),
    needs=("/tensor_parallel/tp/tp_size",),
)

_DS = '{"train_batch_size": 8, "tensor_parallel": {%s}}\n'

EXAMPLES = (
    bad("ignored", {"ds.json": _DS % '"tp": {"tp_size": 4}'}, "ds.json:1 warning"),
    bad("refused", {"ds.json": _DS % '"autotp_size": 2, "tp": {"tp_size": 4}'}, "ds.json:1 warning"),
    good("equal", {"ds.json": _DS % '"autotp_size": 4, "tp": {"tp_size": 4}'}),
    good("the size that counts", {"ds.json": _DS % '"autotp_size": 4'}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The two sizes."""
    view = view_of(doc, context)
    pointer, other = "/tensor_parallel/tp/tp_size", "/tensor_parallel/autotp_size"
    inner, outer = view.number(pointer), view.number(other)
    if not inner.is_known or outer.is_unknown or inner.get() <= 1 or inner.get() == outer.get_or(0):
        return
    if outer.get_or(0) > 1:
        effect = "the engine stops with a `ValueError`"
    else:
        effect = "DeepSpeed ignores it, and every rank silently holds the whole model"
    size = f"`autotp_size` is {outer.get()}" if outer.is_known else "`autotp_size` is not set"
    yield META.finding(
        doc.value(pointer),
        f"`tp.tp_size` is {inner.get()}, but {size}: {effect}",
        hint="Write the size as `tensor_parallel.autotp_size` and leave `tp_size` out",
        related=tuple(o.labelled(f"autotp_size {outer.get()}") for o in outer.origins) if outer.is_known else (),
        pointer=pointer,
    )
