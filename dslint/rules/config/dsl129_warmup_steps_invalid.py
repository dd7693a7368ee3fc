"""A number of warm-up steps that makes no warm-up.

**What.** `scheduler.params.warmup_num_steps` is not a positive whole number (`0`, `10.0`, `"100"`), or larger than
`total_num_steps`.

**Why it hurts.** DeepSpeed 0.19.3 and later stop with `ValueError: warmup_num_steps must be a positive integer, got
10.0` when the engine is made; older releases take at least 2 steps whatever the file says, and stop for a text. A
warm-up that is longer than the training only gets a line in the log: the learning rate never reaches its peak.

**Fix.** `--fix` writes the whole number; 1 for 0, the least that is allowed.

**When it stays quiet.** `"auto"`, which transformers and accelerate fill in, and other schedules than the warm-up ones.
`10.0` in a file that DeepSpeed reads itself: its Hjson reader makes 10 of it; transformers and accelerate keep the
fraction.

**Evidence.** `WarmupLR.__init__` in `deepspeed/runtime/lr_schedules.py` since 0.19.3;
https://github.com/deepspeedai/DeepSpeed/issues/771
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_origin
from dslint.model.deepspeed.history import refusal
from dslint.model.deepspeed.hyper import class_name, worded
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL129",
    name="warmup-steps-invalid",
    kind="config",
    severity=Severity.ERROR,
    summary="`warmup_num_steps` is not a positive whole number, or exceeds the number of steps",
    fix="safe",
    versions=("deepspeed>=0.19.3",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/771",),
    depends_on_run=True,
    needs=("/scheduler/params/warmup_num_steps",),
)

_TEXT = """\
{
  "train_batch_size": 8, "zero_optimization": {"stage": 1},
  "scheduler": {"type": "%s", "params": {"warmup_num_steps": %s}}
}
"""

EXAMPLES = (
    bad("a fraction", {"ds.json": _TEXT % ("WarmupLR", "10.0")}, "ds.json:3 error",
        fixed={"ds.json": _TEXT % ("WarmupLR", "10")}, consumer="hf", deepspeed_version="0.19.8"),
    bad("none", {"ds.json": _TEXT % ("WarmupLR", "0")}, "ds.json:3 error",
        fixed={"ds.json": _TEXT % ("WarmupLR", "1")}),
    bad("an old release takes two", {"ds.json": _TEXT % ("WarmupLR", "0")}, "ds.json:3 info",
        deepspeed_version="0.16.9"),
    bad("a text stops every release", {"ds.json": _TEXT % ("WarmupLR", '"100"')}, "ds.json:3 error",
        fixed={"ds.json": _TEXT % ("WarmupLR", "100")}, deepspeed_version="0.16.9"),
    bad("longer than the training", {"ds.json": _TEXT % ("WarmupDecayLR", '200, "total_num_steps": 100, '
        '"warmup_max_lr": 0.01')}, "ds.json:3 warning"),
    good("as it should be", {"ds.json": _TEXT % ("WarmupDecayLR", '20, "total_num_steps": 100, '
        '"warmup_max_lr": 0.01')}),
    good("filled in", {"ds.json": _TEXT % ("WarmupLR", '"auto"')}),
    good("DeepSpeed's own reader makes a whole number of it", {"ds.json": _TEXT % ("WarmupLR", "10.0")},
         consumer="deepspeed"),
)  # fmt: skip

_STEPS, _TOTAL, _SINCE = "/scheduler/params/warmup_num_steps", "/scheduler/params/total_num_steps", "0.19.3"
_WARMUP = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The number of steps of a warm-up."""
    view = view_of(doc, context)
    fact = view.fact(_STEPS)
    # What only a run knows has no value either.
    is_null = doc.fact(_STEPS).is_known and doc.get(_STEPS) is None
    if class_name(view, "scheduler").get_or("") not in _WARMUP or not (fact.is_known or is_null):
        return
    value = None if is_null else fact.get()
    if isinstance(value, int) and value > 0:
        total = view.fact(_TOTAL)
        if total.is_known and isinstance(total.get(), (int, float)) and value > total.get():
            yield _too_many(view, value, total.get())
        return
    if isinstance(value, float) and 0 < value < 1e15 and value.is_integer() and not _keeps_fractions(view):
        return
    severity, who = refusal(context.deepspeed, _SINCE, "warms up for about 2 steps")
    if isinstance(value, (str, list, dict)) or value is None:
        severity, who = Severity.ERROR, "DeepSpeed stops"
    right = _whole(value)
    edits = replace_value(doc, _STEPS, str(right)) if right else ()
    yield META.finding(
        doc.value(_STEPS),
        f"`warmup_num_steps` is `{worded(view, _STEPS)}`, but must be a positive whole number: {who}",
        hint=f"Write `{right}`" if right else "Write a positive whole number",
        related=version_origin(view.version),
        fix=Fix(f"Write `{right}`", edits) if edits else None,
        severity=severity,
        pointer=_STEPS,
        facts={"with": "/scheduler", "shows": "engine"},
    )


def _keeps_fractions(view: ConfigView) -> bool:
    """Who reads 10.0 as a fraction: Python, and the reader of transformers and accelerate. Hjson makes 10 of it."""
    return view.doc.is_dict or view.consumer in ("hf", "accelerate")


def _too_many(view: ConfigView, steps: int, total: float) -> Finding:
    return META.finding(
        view.value(_STEPS),
        f"`warmup_num_steps` {steps} exceeds `total_num_steps` {total}: the run ends in the warm-up, below its "
        "learning rate",
        hint="Write fewer warm-up steps than steps",
        related=(view.value(_TOTAL, "the number of steps"),),
        severity=Severity.WARNING,
        pointer=_STEPS,
        facts={"with": f"/scheduler/type {_TOTAL}", "shows": "effect"},
    )


def _whole(value: Any) -> int | None:
    """The positive whole number that is meant."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return max(1, int(number)) if number >= 0 and number.is_integer() and number < 1e15 else None
