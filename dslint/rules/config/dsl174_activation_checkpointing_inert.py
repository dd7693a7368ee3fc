"""An `activation_checkpointing` section that the Trainer does not read.

**What.** A switch is on in `activation_checkpointing` of a config that the transformers Trainer or accelerate reads.

**Why it hurts.** DeepSpeed's own checkpointing is a library for the script: only a model that calls
`deepspeed.checkpointing.configure` and `.checkpoint` uses it. `gradient_checkpointing` of transformers goes through
`torch.utils.checkpoint`. The section saves no memory there.

**Fix.** `--gradient_checkpointing True` (or `model.gradient_checkpointing_enable()`), and delete the section.

**When it stays quiet.** It is an information, because a model with code of its own may call DeepSpeed's functions.
Silent for plain DeepSpeed, for Lightning (whose strategy calls `configure`), where the reader is not known, and when
every switch is off.

**Evidence.** No call of `deepspeed.checkpointing` in transformers 5.23 and accelerate 1.15;
https://github.com/deepspeedai/Megatron-DeepSpeed/pull/452
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL174",
    name="activation-checkpointing-inert",
    kind="config",
    severity=Severity.INFO,
    summary="An `activation_checkpointing` section under a Trainer that never reads it",
    references=("https://github.com/deepspeedai/Megatron-DeepSpeed/pull/452",),
    consumers=("hf", "accelerate"),
    depends_on_run=True,
    no_experiment="that nobody calls a function shows in no run; the model's own code decides",
    needs=("/activation_checkpointing",),
)

_DS = (
    '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2},\n'
    ' "activation_checkpointing": {"partition_activations": %s, "cpu_checkpointing": false}}\n'
)

EXAMPLES = (
    bad("the Trainer has its own", {"ds.json": _DS % "true"}, "ds.json:2 info"),
    good("nothing is requested", {"ds.json": _DS % "false"}),
    good("a script may read it", {"ds.json": (_DS % "true").replace('"auto"', "8")}),
)

_SECTION = "/activation_checkpointing"
_SWITCHES = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "profile")


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Any switch that is on."""
    view = view_of(doc, context)
    on = [name for name in _SWITCHES if view.fact(f"{_SECTION}/{name}").get_or(None) is True]
    if on:
        reader = "the transformers Trainer" if view.consumer == "hf" else "accelerate"
        yield META.finding(
            doc.key(_SECTION),
            f"`{on[0]}` of `activation_checkpointing` saves no memory: {reader} does not use `deepspeed.checkpointing`",
            hint="Use `gradient_checkpointing` of transformers and delete the section",
            pointer=_SECTION,
        )
