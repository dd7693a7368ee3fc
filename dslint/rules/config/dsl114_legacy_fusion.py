"""The legacy form of the fused Adam, which is gone.

**What.** `optimizer.legacy_fusion` is true with Adam or AdamW, in fp16 or bf16 without ZeRO.

**Why it hurts.** The wrapper of 16 bits then calls the optimizer as apex once had it, and the optimizer refuses: the
first step that is not skipped stops with `RuntimeError: FusedAdam has been updated`.

**Fix.** `--fix` sets it to false, the default; nothing else is lost, since the legacy form cannot run.

**When it stays quiet.** With ZeRO, in fp32, with `torch_adam` and with every other optimizer: there DeepSpeed does not
read the switch. Below an error where nobody says who reads the config, because a script may pass its own optimizer.

**Evidence.** `FP16_Optimizer.step_fused_adam` in `deepspeed/runtime/fp16/fused_optimizer.py`, `FusedAdam.step` in
`deepspeed/ops/adam/fused_adam.py`; the differential test runs it with the
real class.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import caveat, class_name, refused
from dslint.model.deepspeed.precision import model_format
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL114",
    name="legacy-fusion",
    kind="config",
    severity=Severity.ERROR,
    summary="`legacy_fusion` with Adam in 16 bits: the first step stops",
    fix="safe",
    needs=("/optimizer/legacy_fusion",),
    no_experiment="the experiments put an optimizer of torch in the place of the fused Adam, whose step refuses",
)

_TEXT = """\
{"train_batch_size": 8, "%s": {"enabled": true},
  "optimizer": {"type": "%s", "legacy_fusion": %s, "params": {"lr": 1e-4%s}}%s}
"""

EXAMPLES = (
    bad("fp16", {"ds.json": _TEXT % ("fp16", "Adam", "true", "", "")}, "ds.json:2 error",
        fixed={"ds.json": _TEXT % ("fp16", "Adam", "false", "", "")}, consumer="deepspeed"),
    bad("nobody says who reads it", {"ds.json": _TEXT % ("fp16", "AdamW", "true", "", "")}, "ds.json:2 warning",
        fixed={"ds.json": _TEXT % ("fp16", "AdamW", "false", "", "")}),
    good("off", {"ds.json": _TEXT % ("fp16", "Adam", "false", "", "")}, consumer="deepspeed"),
    good("another optimizer", {"ds.json": _TEXT % ("fp16", "SGD", "true", "", "")}, consumer="deepspeed"),
    good("the Adam of torch", {"ds.json": _TEXT % ("fp16", "Adam", "true", ', "torch_adam": true', "")},
         consumer="deepspeed"),
    good("ZeRO does not read it", {
        "ds.json": _TEXT % ("fp16", "Adam", "true", "", ', "zero_optimization": {"stage": 1}')}, consumer="deepspeed"),
)  # fmt: skip

_SWITCH, _TORCH = "/optimizer/legacy_fusion", "/optimizer/params/torch_adam"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The switch beside optimizer, format and stage."""
    view = view_of(doc, context)
    switch, torch_adam, precision = view.fact(_SWITCH), view.fact(_TORCH), model_format(view)
    # Text is a wrong type, which another rule reports; whatever else counts as true is as good as true.
    if not switch.is_known or isinstance(switch.get(), str) or not switch.get():
        return
    if class_name(view, "optimizer").get_or("") not in ("adam", "adamw") or view.stage.get_or(1) != 0:
        return
    if torch_adam.is_unknown or torch_adam.get_or(False) or precision.get_or("fp32") == "fp32":
        return
    severity = refused(view)
    if severity is None:
        return
    edits = replace_value(doc, _SWITCH, "false")
    yield META.finding(
        doc.value(_SWITCH),
        f"`legacy_fusion` was removed from fused Adam: in {precision.get()} without ZeRO the first step raises"
        f"{caveat(severity)}",
        hint="Set `legacy_fusion` to false, or delete it",
        related=tuple(place.labelled(precision.get()) for place in precision.origins),
        fix=Fix("Set `legacy_fusion` to false", edits) if edits else None,
        severity=severity,
        pointer=_SWITCH,
        facts={"with": "/optimizer /fp16/enabled /bf16/enabled /zero_optimization/stage"},
    )
