"""16-bit master weights without what they need.

**What.** `fp16.fp16_master_weights_and_grads` or `bf16.bf16_master_weights_and_grads` keep the optimizer's copy of the
weights in 16 bits. Both need ZeRO (stage 1, 2 or 3), and an optimizer that is offloaded to the CPU; bf16 can do without
the offload when `bf16_optimizer_states` is true as well. `bf16_optimizer_states` alone is refused too.

**Why it hurts.** DeepSpeed stops with an `AssertionError`: at stage 0, and for `bf16_optimizer_states` alone, while it
reads the config; without offload when the optimizer is made. Since 0.17.1 the switch counts even where `enabled` is
false; before 0.18.3 DeepSpeed accepts it at stage 2 only.

**Fix.** Add `"offload_optimizer": {"device": "cpu"}` at stage 1 or above, or `"bf16_optimizer_states": true`; or drop
the key.

**When it stays quiet.** An unknown stage or device; DeepSpeed before 0.18.3 for the keys of bf16, which it does not
know. At stage 3 without an optimizer in the config it is a warning: inference makes no optimizer.

**Evidence.** `DeepSpeedConfig._do_error_check` in `deepspeed/runtime/config.py`; `_enforce_cpu_offload` in
`deepspeed/runtime/zero/stage_1_and_2.py` and `stage3.py`: "Master weights feature requires ZeRO-2 Offload with
DeepSpeedCPUAdam". Run with DeepSpeed 0.19.8 at all stages.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import absent
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.precision import bf16_section
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL147",
    name="master-weights-without-offload",
    kind="config",
    severity=Severity.ERROR,
    summary="16-bit master weights without ZeRO or without the offload that they need: DeepSpeed stops at start-up",
    depends_on_run=True,
    needs=(
        "/fp16/fp16_master_weights_and_grads",
        "/bf16/bf16_master_weights_and_grads",
        "/bf16/bf16_optimizer_states",
        "/bfloat16/bf16_master_weights_and_grads",
        "/bfloat16/bf16_optimizer_states",
    ),
)

_BF16 = """\
{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true},
  "zero_optimization": {"stage": 2}
}
"""
_OFFLOAD = _BF16.replace('"stage": 2', '"stage": 2, "offload_optimizer": {"device": "cpu"}')
_STATES = _BF16.replace('grads": true', 'grads": true, "bf16_optimizer_states": true')

EXAMPLES = (
    bad("no offload", {"ds.json": _BF16}, "ds.json:4 error"),
    bad("no ZeRO", {"ds.json": _OFFLOAD.replace('"stage": 2', '"stage": 0')}, "ds.json:4 error"),
    bad("fp16, and the states cannot help", {
        "ds.json": _BF16.replace("bf16", "fp16"),
    }, "ds.json:4 error"),
    bad("the states alone", {
        "ds.json": _BF16.replace("bf16_master_weights_and_grads", "bf16_optimizer_states"),
    }, "ds.json:4 error"),
    good("offloaded", {"ds.json": _OFFLOAD}),
    good("states in bf16 as well", {"ds.json": _STATES}),
    good("switched off", {"ds.json": _BF16.replace('grads": true', 'grads": false')}),
)  # fmt: skip

_ZERO_OFFLOAD = "/zero_optimization/offload_optimizer/device"
_STATES_SINCE = "0.18.3"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The three switches."""
    view = view_of(doc, context)
    yield from _master(view, "/fp16/fp16_master_weights_and_grads", None)
    section = bf16_section(view)
    if view.runs(f">={_STATES_SINCE}") != "no":
        master, states = f"{section}/bf16_master_weights_and_grads", f"{section}/bf16_optimizer_states"
        yield from _master(view, master, states)
        fact = view.flag(master)
        if view.flag(states).get_or(False) and not fact.is_unknown and not fact.get_or(False):
            yield META.finding(
                doc.value(states),
                "`bf16_optimizer_states` is on without `bf16_master_weights_and_grads`: DeepSpeed stops with "
                "`AssertionError`",
                hint="Set `bf16_master_weights_and_grads` to true as well, or delete the key",
                pointer=states,
            )


def _master(view: ConfigView, pointer: str, states: str | None) -> Iterator[Finding]:
    if not view.flag(pointer).get_or(False) or not view.stage.is_known:
        return
    if pointer.startswith("/fp16") and view.runs("<0.17.1") == "yes" and not view.flag("/fp16/enabled").get_or(False):
        return  # These releases look at the key only where fp16 is on.
    key = pointer.rpartition("/")[2]
    stage = view.stage.get()
    severity = Severity.ERROR
    only_stage_2 = view.runs(f"<{_STATES_SINCE}") == "yes"
    if stage == 0 or (only_stage_2 and stage != 2):
        needed = "2" if only_stage_2 else "1, 2 or 3"
        found = "ZeRO is off" if stage == 0 else f"the stage is {stage}"
        message = f"`{key}` needs ZeRO stage {needed}, but {found}: DeepSpeed stops with `AssertionError`"
        hint = f"Choose ZeRO stage {needed}, or delete the key"
    else:
        other = view.flag(states) if states else absent()
        if not _has_no_offload(view) or other.is_unknown or other.get_or(False):
            return
        if stage == 3 and not view.has("/optimizer"):
            severity = Severity.WARNING
        more = "" if states is None else " or `bf16_optimizer_states`"
        message = f"`{key}` needs an optimizer offloaded to the CPU{more}, and has none: DeepSpeed stops"
        hint = 'Add `"offload_optimizer": {"device": "cpu"}`' + (", or set `bf16_optimizer_states`" if states else "")
    yield META.finding(
        view.value(pointer),
        message,
        hint=hint,
        related=tuple(o.labelled(f"ZeRO stage {stage}") for o in view.stage.origins),
        severity=severity,
        pointer=pointer,
    )


def _has_no_offload(view: ConfigView) -> bool:
    device, old = view.word(_ZERO_OFFLOAD), view.flag("/zero_optimization/cpu_offload")
    if device.is_unknown or old.is_unknown or old.get_or(False):
        return False
    return device.get_or("none") == "none"
