"""A vocabulary size that tensor cores do not like.

**What.** `vocabulary_size` is not a multiple of 8 while fp16 is on. Off by default.

**Why it hurts.** The last matrix multiplication of the model runs without tensor cores. DeepSpeed logs a warning.

**Fix.** Pad the vocabulary to the next multiple of 8.

**When it stays quiet.** fp16 off, a multiple of 8.

**Evidence.** `DeepSpeedConfig._do_warning_check` in `deepspeed/runtime/config.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL198",
    name="vocabulary-not-aligned",
    kind="config",
    severity=Severity.INFO,
    summary="A vocabulary size that is not a multiple of 8: no tensor cores for the last layer",
    optional=True,
    no_experiment="DeepSpeed itself logs it, and only a GPU shows what it costs",
    needs=("/vocabulary_size",),
)

_DS = '{"train_batch_size": 8, "fp16": {"enabled": true}, "vocabulary_size": %s}\n'

EXAMPLES = (
    bad("an odd size", {"ds.json": _DS % 30522}, "ds.json:1 info"),
    good("padded", {"ds.json": _DS % 30528}),
    good("without fp16", {"ds.json": (_DS % 30522).replace("true", "false")}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The size."""
    view = view_of(doc, context)
    size = view.number("/vocabulary_size")
    if size.is_known and size.get() % 8 and view.flag("/fp16/enabled").get_or(False):
        yield META.finding(
            doc.value("/vocabulary_size"),
            f"`vocabulary_size` is {size.get()}, not a multiple of 8: the last layer runs without tensor cores",
            hint="Pad the vocabulary to a multiple of 8",
            pointer="/vocabulary_size",
        )
