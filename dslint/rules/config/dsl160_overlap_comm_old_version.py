"""`overlap_comm` with a DeepSpeed release in which it can corrupt gradients.

**What.** With `overlap_comm: true`, ZeRO reduces the gradients of one bucket while the backward pass fills the next.
Before DeepSpeed 0.17.5 the two could touch the same buffer: reported again and again for stage 2 from 0.12.4 on, and
for stage 1, which honours the switch since 0.13.0.

**Why it hurts.** Training on one GPU is fine; on several the loss falls to 0 or turns to NaN, or the model quietly
learns from wrong gradients. Nothing raises.

**Fix.** Upgrade to `deepspeed>=0.17.5`. Where the version must stay, `false` is always right and costs some speed:
`--unsafe-fixes` writes it.

**When it stays quiet.** Releases from 0.18.5 on; stage 0; stage 1 before 0.13.0; one process, stated or in every launch
command that names the file; `overlap_comm` that is `"auto"` or not set. From 0.17.5 to 0.18.4 the fix makes the two
streams wait for each other: results are right and nothing overlaps, which is an information. When the version is not
stated, or a range reaches over 0.17.5, it is only an information. So it is at stage 3, which overlaps by default: one
report says that the race exists there, nobody has shown it, and no release is known that ended it.

**Evidence.** https://github.com/haotian-liu/LLaVA/issues/1661, https://github.com/haotian-liu/LLaVA/issues/1231,
https://github.com/deepspeedai/DeepSpeed/issues/5242, https://github.com/deepspeedai/DeepSpeed/issues/5545,
https://github.com/deepspeedai/DeepSpeed/issues/7188; the fixes: https://github.com/deepspeedai/DeepSpeed/pull/5606
(0.14.3), https://github.com/deepspeedai/DeepSpeed/pull/6993 (0.17.2),
https://github.com/deepspeedai/DeepSpeed/pull/7371 (0.17.5), https://github.com/deepspeedai/DeepSpeed/pull/7805 (0.18.5,
which overlaps again). A CPU has no streams and cannot show the race.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.config import flag, stage_of, version_named, version_origin
from dslint.model.edits import replace_value
from dslint.model.versions.resolve import covers
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL160",
    name="overlap-comm-old-version",
    kind="config",
    severity=Severity.WARNING,
    summary="`overlap_comm` with a DeepSpeed release in which it can corrupt gradients",
    fix="unsafe",
    versions=("deepspeed<0.17.5",),
    references=(
        "https://github.com/haotian-liu/LLaVA/issues/1661",
        "https://github.com/deepspeedai/DeepSpeed/issues/5242",
        "https://github.com/deepspeedai/DeepSpeed/issues/5545",
        "https://github.com/deepspeedai/DeepSpeed/pull/7371",
    ),
    depends_on_run=True,
    needs=("/zero_optimization/overlap_comm",),
)

_FIXED_IN = "0.17.5"
_OVERLAPS_IN = "0.18.5"
_STAGE_1_SINCE = "0.13.0"
_POINTER = "/zero_optimization/overlap_comm"

_ZERO2 = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": true,
    "contiguous_gradients": true
  }
}
"""
_ZERO3 = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": true,
    "stage3_gather_16bit_weights_on_model_save": true
  }
}
"""

EXAMPLES = (
    bad(
        "the pinned release has the race",
        {"zero2.json": _ZERO2},
        "zero2.json:5 warning",
        fixed={"zero2.json": _ZERO2.replace('"overlap_comm": true', '"overlap_comm": false')},
        deepspeed_version="0.12.6",
    ),
    bad("stage 3 on an old release", {"zero3.json": _ZERO3}, "zero3.json:5 info", deepspeed_version="0.12.6"),
    bad("nobody states the release", {"zero2.json": _ZERO2}, "zero2.json:5 info"),
    bad("the range reaches over the fix", {"zero2.json": _ZERO2}, "zero2.json:5 info", deepspeed_version=">=0.12"),
    good("a release with the fix", {"zero2.json": _ZERO2}, deepspeed_version="0.18.5"),
    bad("a fix without overlap", {"zero2.json": _ZERO2}, "zero2.json:5 info", deepspeed_version="0.18.2"),
    good(
        "the only command starts one process",
        {"run.sh": "deepspeed --num_gpus 1 train.py --deepspeed zero2.json\n", "zero2.json": _ZERO2},
        deepspeed_version="0.12.6",
    ),
    good(
        "stage 1 did not overlap before 0.13.0",
        {"zero1.json": _ZERO2.replace('"stage": 2', '"stage": 1')},
        deepspeed_version="0.12.6",
    ),
    good("one process has no gradients to reduce", {"zero2.json": _ZERO2}, deepspeed_version="0.12.6", world_size=1),
    good("switched off", {"zero2.json": _ZERO2.replace("true,", "false,", 1)}, deepspeed_version="0.12.6"),
    good("left to the default of the stage", {"zero3.json": _ZERO3.replace('    "overlap_comm": true,\n', "")}),
)


_HINT = f"Upgrade to `deepspeed>={_FIXED_IN}`; where the version must stay, set `overlap_comm` to false"
_HINT_STAGE_3 = (
    "Set `overlap_comm` to false, or upgrade and compare the gradient norms of some steps with both values; DeepSpeed"
    " issue 5545 reports it for stage 3, and no fixing release is known"
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The switch, the stage and the release together."""
    if not flag(doc, (_POINTER,)).get_or(False) or context.world_size.get_or(0) == 1:
        return
    stage = stage_of(doc)
    if stage.get_or(0) in (1, 2) and covers(context.deepspeed, f">={_FIXED_IN},<{_OVERLAPS_IN}") == "yes":
        yield _without_overlap(doc, context)
        return
    affected = _affected(stage.get_or(0), context.deepspeed)
    if affected == "no":
        return
    edits = replace_value(doc, _POINTER, "false")
    yield META.finding(
        doc.value(_POINTER),
        _message(stage.get(), context.deepspeed, affected),
        hint=_HINT_STAGE_3 if stage.get() == 3 else _HINT,
        related=version_origin(context.deepspeed),
        fix=Fix("Set `overlap_comm` to false", edits, Safety.UNSAFE) if edits else None,
        severity=Severity.WARNING if affected == "yes" and stage.get() != 3 else Severity.INFO,
        assumptions=(assumed("reported-by-users"),),
        pointer=_POINTER,
        facts={"stage": stage.get()},
    )


def _without_overlap(doc: DataDoc, context: Context) -> Finding:
    return META.finding(
        doc.value(_POINTER),
        f"`overlap_comm` overlaps nothing on {version_named(context.deepspeed)}: the reduction waits for backward, and "
        "the second bucket still takes memory",
        hint=f"Upgrade to `deepspeed>={_OVERLAPS_IN}`, or set `overlap_comm` to false",
        related=version_origin(context.deepspeed),
        severity=Severity.INFO,
        pointer=_POINTER,
    )


def _affected(stage: int, version: VersionFact) -> str:
    """``yes`` | ``maybe`` | ``no``: the release has the race."""
    if stage not in (1, 2, 3):
        return "no"
    return covers(version, f">={_STAGE_1_SINCE},<{_FIXED_IN}" if stage == 1 else f"<{_FIXED_IN}")


def _message(stage: int, version: VersionFact, affected: str) -> str:
    setting = f"`overlap_comm` with ZeRO stage {stage}"
    harm = "can overwrite gradients during reduction (loss 0 or NaN)"
    if affected == "yes":
        return f"{setting} on {version_named(version)} {harm}"
    return f"{setting} on DeepSpeed before {_FIXED_IN} {harm}"
