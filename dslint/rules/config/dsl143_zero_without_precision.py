"""ZeRO on, and neither fp16 nor bf16.

**What.** ZeRO stage 1, 2 or 3 in a config that switches on no format of 16 bits and no autocast. Off by
default.

**Why it hurts.** The run trains in fp32: weights, gradients and collectives take twice the memory and time of a
16-bit run, and the optimizer states that ZeRO shards are then the smaller part of it. Somebody who turned ZeRO on to
save memory rarely means that.

**Fix.** `"bf16": {"enabled": true}` (or fp16 on GPUs without bf16), unless fp32 is meant.

**When it stays quiet.** It is an information: fp32 is legal, and what the model's weights are converted to by the
script is not seen. Silent where a Trainer or accelerate set the precision, and for `"auto"`.

**Evidence.** DeepSpeed 0.19.8: `engine.module` keeps `torch.float32` at every stage.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.precision import model_format
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL143",
    name="zero-without-precision",
    kind="config",
    severity=Severity.INFO,
    summary="ZeRO without fp16 or bf16: the run trains in fp32",
    consumers=("deepspeed", "unknown"),
    depends_on_run=True,
    optional=True,
    no_experiment="fp32 is what the config says; only a person knows whether it is meant",
)

_ZERO = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}%s}\n'

EXAMPLES = (
    bad("no format is named", {"ds.json": _ZERO % ""}, "ds.json:1 info"),
    bad("bf16 is off", {"ds.json": _ZERO % ', "bf16": {"enabled": false}'}, "ds.json:1 info"),
    good("bf16", {"ds.json": _ZERO % ', "bf16": {"enabled": true}'}),
    good("autocast", {"ds.json": _ZERO % ', "torch_autocast": {"enabled": true, "dtype": "bfloat16"}'}),
    good("ZeRO is off", {"ds.json": (_ZERO % "").replace("2", "0")}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Stage 1 or more, all switches certainly off."""
    view = view_of(doc, context)
    if not view.stage.get_or(0) or not doc.has("/zero_optimization"):
        return
    autocast = view.flag("/torch_autocast/enabled")
    # Configs of before 0.19.8 may leave the precision to apex.
    apex = view.flag("/amp/enabled")
    if model_format(view).get_or("") != "fp32" or autocast.is_unknown or apex.is_unknown:
        return
    if autocast.get_or(False) or apex.get_or(False):
        return
    stage = view.stage.get()
    yield META.finding(
        view.nearest("/zero_optimization/stage"),
        f"ZeRO stage {stage} without `fp16` or `bf16` trains in fp32, with twice the memory for weights and gradients",
        hint='Add `"bf16": {"enabled": true}` unless fp32 is meant',
        pointer="/zero_optimization/stage" if doc.has("/zero_optimization/stage") else "/zero_optimization",
    )
