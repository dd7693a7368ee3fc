"""Muon with gradients that each rank has only a part of.

**What.** `optimizer.type` is `Muon` with ZeRO stage 3 and `reduce_scatter` on, which is the default; or with stage 1 or
2 before DeepSpeed 0.19.3.

**Why it hurts.** Muon needs whole matrices. At stage 3 every rank stops with `ValueError: Muon and reduce scatter
cannot be used together` (before 0.18.9: `Muon optimizer is not yet compatible with ZeRO Stage 3`). At stages 1 and 2,
releases before 0.19.3 orthogonalise matrices that are cut at the borders of ranks and buckets: wrong updates,
silently.

**Fix.** `--fix` sets `reduce_scatter` to false at stage 3.

**When it stays quiet.** Stages that are not known, `reduce_scatter` false at stage 3 of a release that allows it.

**Evidence.** `DeepSpeedZeroOptimizer_Stage3.__init__` in `deepspeed/runtime/zero/stage3.py`;
https://github.com/deepspeedai/DeepSpeed/pull/8090, https://github.com/deepspeedai/DeepSpeed/pull/8141
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.hyper import OPTIMIZER, class_name
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import insert_member, replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL125",
    name="muon-reduce-scatter",
    kind="config",
    severity=Severity.ERROR,
    summary="Muon stops with reduce scatter at stage 3, and updated wrongly at stages 1 and 2 before 0.19.3",
    fix="safe",
    versions=("deepspeed>=0.17.6",),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/8141",),
    depends_on_run=True,
    needs=("/optimizer/type",),
)

_TEXT = """\
{"train_batch_size": 8, "optimizer": {"type": "Muon", "params": {"lr": 0.1}},
  "zero_optimization": {"stage": %d%s}}
"""
_OFF = ', "reduce_scatter": false'

EXAMPLES = (
    bad("the default is on", {"ds.json": _TEXT % (3, "")}, "ds.json:1 error", fixed={"ds.json": _TEXT % (3, _OFF)}),
    bad("wrong updates", {"ds.json": _TEXT % (2, "")}, "ds.json:1 warning", deepspeed_version="0.18.9"),
    bad("no stage 3 yet", {"ds.json": _TEXT % (3, _OFF)}, "ds.json:1 error", deepspeed_version="0.18.3"),
    good("switched off", {"ds.json": _TEXT % (3, _OFF)}),
    good("repaired", {"ds.json": _TEXT % (2, "")}, deepspeed_version="0.19.8"),
)

_SWITCH, _STAGE_3 = "/zero_optimization/reduce_scatter", "0.18.9"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The optimizer beside the stage."""
    view = view_of(doc, context)
    if class_name(view, "optimizer").get_or("") != "muon":
        return
    stage = view.stage.get_or(0)
    if stage == 3:
        yield from _stage_3(view)
    elif stage and view.runs("<0.19.3") == "yes":
        yield _finding(
            view,
            f"Muon at ZeRO stage {stage} on {version_named(view.version)} silently updates weights wrongly: it sees "
            "matrices cut by rank and bucket",
            "Upgrade to DeepSpeed 0.19.3",
            severity=Severity.WARNING,
            since="0.19.3",
        )


def _stage_3(view: ConfigView) -> Iterator[Finding]:
    switch = view.flag(_SWITCH)
    if view.runs(f"<{_STAGE_3}") == "yes":
        message = f"Muon does not work at ZeRO stage 3 in {version_named(view.version)}: the run stops at start-up"
        yield _finding(view, message, f"Use stage 2, or upgrade to DeepSpeed {_STAGE_3}", since=_STAGE_3)
    elif switch.is_absent or (switch.is_known and switch.get()):
        doc = view.doc
        edits = (
            replace_value(doc, _SWITCH, "false")
            if doc.has(_SWITCH)
            else insert_member(doc, "/zero_optimization", "reduce_scatter", "false")
        )
        how = "is on" if switch.is_known else "is on by default"
        message = (
            f"`reduce_scatter` {how}, and Muon at ZeRO stage 3 needs whole gradients: every rank stops at start-up"
        )
        yield _finding(view, message, "Set `reduce_scatter` to false", edits)


def _finding(
    view: ConfigView,
    message: str,
    hint: str,
    edits: tuple[Edit, ...] = (),
    severity: Severity = Severity.ERROR,
    since: str = "",
) -> Finding:
    return META.finding(
        view.doc.value(OPTIMIZER), message, hint=hint, severity=severity, pointer=OPTIMIZER,
        fix=Fix(hint, edits) if edits else None,
        related=(*(p.labelled("the stage") for p in view.stage.origins), *version_origin(view.version)),
        facts={"with": f"/zero_optimization/stage {_SWITCH}", **({"since": since} if since else {})},
    )  # fmt: skip
