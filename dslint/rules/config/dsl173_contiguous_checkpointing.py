"""Contiguous activation checkpoints without what they need.

**What.** `activation_checkpointing.contiguous_memory_optimization` is true, but `partition_activations` is not, or
`number_checkpoints` is missing.

**Why it hurts.** `deepspeed.checkpointing.configure` stops with an `AssertionError`: "Contiguous Checkpointing is only
available with partitioned activations", then "Must specify the number of layers".

**Fix.** Set `partition_activations` to true and `number_checkpoints` to the number of layers.

**When it stays quiet.** It is a warning, because a script that never calls `configure` does not read the section. A
missing number alone is an information: Megatron passes it to `configure` from its command line.

**Evidence.** `configure` in `deepspeed/runtime/activation_checkpointing/checkpointing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL173",
    name="contiguous-checkpointing-incomplete",
    kind="config",
    severity=Severity.WARNING,
    summary="Contiguous activation checkpoints without partitioning or without the number of layers",
    no_experiment="only code of the model calls `deepspeed.checkpointing.configure`",
    needs=("/activation_checkpointing/contiguous_memory_optimization",),
)

_DS = '{"train_batch_size": 8, "activation_checkpointing": {"contiguous_memory_optimization": true%s}}\n'

EXAMPLES = (
    bad("nothing else is set", {"ds.json": _DS % ""}, "ds.json:1 warning"),
    bad("the number of layers is missing", {"ds.json": _DS % ', "partition_activations": true'}, "ds.json:1 info"),
    good("complete", {"ds.json": _DS % ', "partition_activations": true, "number_checkpoints": 24'}),
    good("off", {"ds.json": (_DS % "").replace("true", "false")}),
)

_SECTION = "/activation_checkpointing"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The switch and its two conditions."""
    view = view_of(doc, context)
    pointer = f"{_SECTION}/contiguous_memory_optimization"
    if view.fact(pointer).get_or(None) is not True:
        return
    partition, number = view.fact(f"{_SECTION}/partition_activations"), view.fact(f"{_SECTION}/number_checkpoints")
    missing = []
    if not partition.is_unknown and not partition.get_or(False):
        missing.append("`partition_activations` is off")
    if number.is_absent:
        missing.append("`number_checkpoints` is missing")
    if missing:
        yield META.finding(
            doc.value(pointer),
            f"`contiguous_memory_optimization` is on, but {' and '.join(missing)}: `checkpointing.configure` raises",
            hint="Set `partition_activations` to true and `number_checkpoints` to the number of layers, or pass them in"
            " the script",
            severity=Severity.INFO if len(missing) == 1 and number.is_absent else None,
            pointer=pointer,
        )
