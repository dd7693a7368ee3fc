"""A warm-up to another learning rate than that of the optimizer.

**What.** `WarmupDecayLR` without `warmup_max_lr` (`WarmupLR` as well before DeepSpeed 0.17.2), or a `warmup_max_lr`
that differs from `optimizer.params.lr`.

**Why it hurts.** The schedule sets the learning rate, and without `warmup_max_lr` its peak is 0.001, whatever the
optimizer says: a run with 2e-5 trains at fifty times that, silently.

**Fix.** `--fix` adds `warmup_max_lr` with the learning rate of the optimizer (`"auto"` where that is left to the
Trainer). Where two numbers differ, choose one.

**When it stays quiet.** The optimizer says no learning rate, or several; values that are not known; other schedules.

**Evidence.** `WarmupDecayLR.__init__` in `deepspeed/runtime/lr_schedules.py`; the experiment reads the learning rates
of an engine. https://github.com/deepspeedai/DeepSpeed/issues/7303,
https://github.com/deepspeedai/DeepSpeed/pull/7360 (WarmupLR only)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.hyper import class_name, parameters, worded
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import insert_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL168",
    name="scheduler-lr-mismatch",
    kind="config",
    severity=Severity.WARNING,
    summary="The schedule warms up to another learning rate than the optimizer says",
    fix="safe",
    references=("https://github.com/deepspeedai/DeepSpeed/issues/7303",),
    depends_on_run=True,
    needs=("/scheduler/type",),
)

_TEXT = """\
{
  "train_batch_size": 8, "zero_optimization": {"stage": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": %s}},
  "scheduler": {"type": "%s", "params": {"warmup_num_steps": 10%s}}
}
"""
_TOTAL, _MAX = ', "total_num_steps": 100', ', "warmup_max_lr": %s'

EXAMPLES = (
    bad("the default is 0.001", {"ds.json": _TEXT % ("2e-5", "WarmupDecayLR", _TOTAL)}, "ds.json:4 warning",
        fixed={"ds.json": _TEXT % ("2e-5", "WarmupDecayLR", _TOTAL + _MAX % "2e-5")}),
    bad("the Trainer's learning rate is not used", {"ds.json": _TEXT % ('"auto"', "WarmupDecayLR", _TOTAL)},
        "ds.json:4 warning", fixed={"ds.json": _TEXT % ('"auto"', "WarmupDecayLR", _TOTAL + _MAX % '"auto"')}),
    bad("WarmupLR of older releases", {"ds.json": _TEXT % ("2e-5", "WarmupLR", "")}, "ds.json:4 warning",
        fixed={"ds.json": _TEXT % ("2e-5", "WarmupLR", _MAX % "2e-5")}, deepspeed_version="0.16.9"),
    bad("two learning rates", {"ds.json": _TEXT % ("2e-5", "WarmupLR", _MAX % "1e-4")}, "ds.json:4 warning"),
    good("newer releases take that of the optimizer", {"ds.json": _TEXT % ("2e-5", "WarmupLR", "")},
         deepspeed_version="0.19.8"),
    good("nobody states the release", {"ds.json": _TEXT % ("2e-5", "WarmupLR", "")}),
    good("the same", {"ds.json": _TEXT % ("2e-5", "WarmupDecayLR", _TOTAL + _MAX % "0.00002")}),
    good("both are left to the Trainer", {
        "ds.json": _TEXT % ('"auto"', "WarmupDecayLR", ', "total_num_steps": "auto"' + _MAX % '"auto"'),
    }),
)  # fmt: skip

_RATE, _PEAK, _FIXED, _DEFAULT = "/optimizer/params/lr", "/scheduler/params/warmup_max_lr", "0.17.2", 0.001


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The peak of the schedule beside the learning rate of the optimizer."""
    view = view_of(doc, context)
    name = class_name(view, "scheduler").get_or("")
    if name not in ("WarmupLR", "WarmupDecayLR") or not doc.has(_RATE):
        return
    rate, peak = view.number(_RATE), view.number(_PEAK)
    if peak.is_known and rate.is_known:
        if not math.isclose(peak.get(), rate.get(), rel_tol=1e-6):
            yield _differ(view, float(rate.get()), float(peak.get()))
    elif peak.is_absent and not view.has(_PEAK) and parameters(view, "scheduler") is not None:
        of_old = name == "WarmupDecayLR" or view.runs(f"<{_FIXED}") == "yes"
        left_open = view.is_auto(_RATE) and view.consumer in ("hf", "accelerate")
        if of_old and (left_open or (rate.is_known and not math.isclose(rate.get(), _DEFAULT, rel_tol=1e-6))):
            yield _missing(view, name)


def _differ(view: ConfigView, rate: float, peak: float) -> Finding:
    return META.finding(
        view.value(_PEAK),
        f"`warmup_max_lr` is {peak:g} but `lr` of the optimizer is {rate:g}: the schedule wins, and the run trains at "
        f"up to {peak:g}",
        hint="Make both the same",
        related=(view.value(_RATE, "the learning rate of the optimizer"),),
        pointer=_PEAK,
        facts={"with": f"/scheduler /optimizer/type {_RATE}"},
    )


def _missing(view: ConfigView, name: str) -> Finding:
    doc = view.doc
    text = worded(view, _RATE)
    edits = insert_member(doc, "/scheduler/params", "warmup_max_lr", text) if view.has("/scheduler/params") else ()
    whose = f" in {version_named(view.version)}" if name == "WarmupLR" else ""
    told = "the learning rate of the Trainer" if view.is_auto(_RATE) else f"{text} of the optimizer"
    return META.finding(
        doc.value("/scheduler/type"),
        f"`{name}` without `warmup_max_lr` silently warms up to {_DEFAULT}{whose}, not to {told}",
        hint=f'Add `"warmup_max_lr": {text}`',
        related=(doc.value(_RATE, "the learning rate of the optimizer"), *version_origin(view.version)),
        fix=Fix(f'Add `"warmup_max_lr": {text}`', edits) if edits else None,
        pointer="/scheduler/type",
        facts={"with": f"/scheduler /optimizer/type {_RATE}", **({"since": _FIXED} if name == "WarmupLR" else {})},
    )
