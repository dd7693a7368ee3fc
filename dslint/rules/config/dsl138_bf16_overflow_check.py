"""bf16 and a default that changed in 0.19.3.

**What.** bf16 is on, `check_grad_overflow` is not said, and the project allows DeepSpeed releases on both sides of
0.19.3. Off by default.

**Why it hurts.** Until 0.19.2 a step with infinite or NaN gradients was applied, from 0.19.3 on it is skipped: the same
config and seed give other weights after an upgrade.

**Fix.** Write `"check_grad_overflow"` as you mean it.

**When it stays quiet.** A pinned release; no stated release; bf16 off or `"auto"`.

**Evidence.** `DeepSpeedBF16Config.check_grad_overflow` in `deepspeed/runtime/precision_config.py`: false in 0.19.2,
true in 0.19.3; https://github.com/deepspeedai/DeepSpeed/issues/5242
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_origin
from dslint.model.deepspeed.precision import bf16_section, model_format
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL138",
    name="bf16-overflow-check-default",
    kind="config",
    severity=Severity.INFO,
    summary="bf16 steps with infinite gradients are applied before DeepSpeed 0.19.3 and skipped since",
    versions=("deepspeed>=0.17.1",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/5242",),
    depends_on_run=True,
    optional=True,
    no_experiment="the default of two releases differs; one installed release shows only its own",
)

_BF16 = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true%s}}\n'

EXAMPLES = (
    bad("both defaults are possible", {"ds.json": _BF16 % ""}, "ds.json:1 info", deepspeed_version=">=0.18,<0.20"),
    good("said", {"ds.json": _BF16 % ', "check_grad_overflow": true'}, deepspeed_version=">=0.18,<0.20"),
    good("a pin", {"ds.json": _BF16 % ""}, deepspeed_version="0.18.9"),
    good("no version is stated", {"ds.json": _BF16 % ""}),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """A range that crosses 0.19.3."""
    view = view_of(doc, context)
    section = bf16_section(view)
    if not view.version.is_known or view.runs(">=0.19.3") != "maybe" or model_format(view).get_or("") != "bf16":
        return
    if view.fact(f"{section}/check_grad_overflow").is_absent:
        yield META.finding(
            view.key(section),
            "`check_grad_overflow` is not set: releases before 0.19.3 apply a bf16 step with infinite gradients,"
            " later "
            "ones skip it",
            hint="Set `check_grad_overflow` to what you intend",
            related=version_origin(view.version),
            pointer=section,
        )
