"""Timers and profilers that are on.

**What.** `wall_clock_breakdown`, `memory_breakdown` or `flops_profiler.enabled` is true. Off by default.

**Why it hurts.** DeepSpeed waits for the device at every timer, so that communication no longer overlaps computation;
the flops profiler switches the timers on as well and prints a report of hundreds of lines at its step.

**Fix.** Switch them off for a production run.

**When it stays quiet.** `false`, absent.

**Evidence.** `DeepSpeedEngine._start_timers` and `flops_profiler` in `deepspeed/runtime/engine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc, dotted_key
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL175",
    name="profiling-left-on",
    kind="config",
    severity=Severity.INFO,
    summary="A timer or profiler that slows every step",
    fix="unsafe",
    optional=True,
    no_experiment="what it costs depends on the model and the device",
    needs=("/wall_clock_breakdown", "/flops_profiler/enabled"),
)

_DS = '{"train_batch_size": 8, "wall_clock_breakdown": %s, "flops_profiler": {"enabled": %s}}\n'

EXAMPLES = (
    bad("the timers", {"ds.json": _DS % ("true", "false")}, "ds.json:1 info",
        fixed={"ds.json": _DS % ("false", "false")}),
    bad("the profiler", {"ds.json": _DS % ("false", "true")}, "ds.json:1 info",
        fixed={"ds.json": _DS % ("false", "false")}),
    good("off", {"ds.json": _DS % ("false", "false")}),
    good("absent", {"ds.json": '{"train_batch_size": 8, "flops_profiler": {"profile_step": 5}}\n'}),
)  # fmt: skip

_EFFECTS = {
    "/wall_clock_breakdown": "DeepSpeed waits for the device at every timer of a step",
    "/memory_breakdown": "DeepSpeed asks the device for its memory at every part of a step",
    "/flops_profiler/enabled": "timers are on, and a long report is printed at the profiled step",
}


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Each switch."""
    view = view_of(doc, context)
    for pointer, effect in _EFFECTS.items():
        if view.fact(pointer).get_or(None) is True:
            edits = replace_value(doc, pointer, "false")
            yield META.finding(
                doc.value(pointer),
                f"`{dotted_key(pointer)}` is true: {effect}, which slows training",
                hint="Switch it off for a production run",
                fix=Fix("Write false", edits, Safety.UNSAFE) if edits else None,
                pointer=pointer,
            )
