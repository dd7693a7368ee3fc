"""A schedule of torch over an optimizer that DeepSpeed wraps.

**What.** `scheduler.type` names a class of `torch.optim.lr_scheduler` (`StepLR`, `CosineAnnealingLR`, ...), and ZeRO,
fp16 or bf16 is on.

**Why it hurts.** ZeRO and both formats of 16 bits put an object of DeepSpeed around the optimizer, and torch's
schedules accept none but torch's own class: every rank stops with `TypeError: DeepSpeedZeroOptimizer is not an
Optimizer` when the engine is made, after the model was loaded.

**Fix.** Name a schedule of DeepSpeed (`WarmupLR`, `WarmupDecayLR`, `WarmupCosineLR`, `OneCycle`, `LRRangeTest`), or
make the schedule in the script, over the optimizer that it hands to `deepspeed.initialize`.

**When it stays quiet.** Without ZeRO in fp32, autocast included, where torch's schedules work. A stage and a format
that only a run knows. A script that hands its own schedule to `deepspeed.initialize` runs anyway.

**Evidence.** `_configure_lr_scheduler` in `deepspeed/runtime/engine.py`, `LRScheduler.__init__` in
`torch/optim/lr_scheduler.py`; run with DeepSpeed 0.19.8 and torch 2.13: stages 1, 2 and 3, fp16 and bf16 stopped,
with an optimizer of the config and with one of the script.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import SCHEDULER, class_name
from dslint.model.deepspeed.precision import model_format
from dslint.model.deepspeed.signatures import SCHEDULES, own_names, torch_names
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL113",
    name="torch-schedule-wrapped-optimizer",
    kind="config",
    severity=Severity.ERROR,
    summary="A schedule of torch refuses the optimizer that ZeRO, fp16 and bf16 wrap",
    references=("https://www.deepspeed.ai/docs/config-json/#scheduler-parameters",),
    depends_on_run=True,
    needs=("/scheduler/type",),
)

_TEXT = """\
{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "%s", "params": {"%s": 10}},
  %s}
"""
_STEPS = _TEXT % ("StepLR", "step_size", "%s")

EXAMPLES = (
    bad("with ZeRO", {"ds.json": _STEPS % '"zero_optimization": {"stage": 2}'}, "ds.json:2 error"),
    bad("with fp16", {"ds.json": _TEXT % ("CosineAnnealingLR", "T_max", '"fp16": {"enabled": true}')},
        "ds.json:2 error"),
    bad("with bf16", {"ds.json": _STEPS % '"bf16": {"enabled": true}'}, "ds.json:2 error"),
    good("no wrapper in fp32", {"ds.json": _STEPS % '"zero_optimization": {"stage": 0}'}),
    good("autocast wraps nothing", {"ds.json": _STEPS % '"torch_autocast": {"enabled": true, "dtype": "bfloat16"}'}),
    good("a schedule of DeepSpeed", {
        "ds.json": _TEXT % ("WarmupLR", "warmup_num_steps", '"zero_optimization": {"stage": 1, "reduce_scatter": true},'
                            ' "bf16": {"enabled": true}')}),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The schedule beside what wraps the optimizer."""
    view = view_of(doc, context)
    fact = class_name(view, "scheduler")
    if not fact.is_known or fact.get() in own_names(SCHEDULES) or fact.get() not in torch_names(SCHEDULES):
        return
    found = _wrapper(view)
    if found is None:
        return
    who, origin = found
    shown = ", ".join(f"`{name}`" for name in own_names(SCHEDULES))
    yield META.finding(
        doc.value(SCHEDULER),
        f"torch's `{fact.get()}` accepts only torch optimizers, but {who} wraps the optimizer: every rank stops with a "
        "`TypeError`",
        hint=f"Name a schedule of DeepSpeed ({shown}), or make the schedule in the script",
        related=tuple(place.labelled(who) for place in origin.origins),
        pointer=SCHEDULER,
        facts={"with": "/scheduler /optimizer /zero_optimization/stage /fp16/enabled /bf16/enabled"},
    )


def _wrapper(view: ConfigView) -> tuple[str, Fact[int] | Fact[str]] | None:
    """What certainly wraps the optimizer: its name and where it is said."""
    if view.stage.get_or(0):
        return f"ZeRO stage {view.stage.get()}", view.stage
    precision = model_format(view)
    return (precision.get(), precision) if precision.get_or("fp32") != "fp32" else None
