"""A schedule without an argument that it needs.

**What.** `WarmupDecayLR` or `WarmupCosineLR` without `total_num_steps`, `OneCycle` without `cycle_min_lr` and
`cycle_max_lr`, a schedule of torch without what it needs; or any schedule without `params`.

**Why it hurts.** Every rank stops with `TypeError: __init__() missing 1 required positional argument:
'total_num_steps'` (without `params`: `argument after ** must be a mapping, not NoneType`) when the engine is made.

**Fix.** Add it. Where transformers or accelerate reads the file, `--fix` writes `"auto"` for the number of steps: they
fill it in. It is not filled in where nothing is.

**When it stays quiet.** A schedule that is not known, `params` that a program makes.

**Evidence.** `_scheduler_from_config` in `deepspeed/runtime/engine.py`, `deepspeed/runtime/lr_schedules.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import SCHEDULER, class_name, is_known, parameters
from dslint.model.deepspeed.signatures import SCHEDULES, required
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import insert_member
from dslint.parse.data import DataDoc, dotted_key
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL128",
    name="scheduler-missing-param",
    kind="config",
    severity=Severity.ERROR,
    summary="The schedule lacks an argument that its class needs",
    fix="safe",
    references=("https://www.deepspeed.ai/docs/config-json/#scheduler-parameters",),
    depends_on_run=True,
    needs=("/scheduler/type",),
)

_TEXT = '{\n  "train_batch_size": 8,\n  "scheduler": {"type": "%s"%s}\n}\n'
_AUTO = """\
{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupDecayLR", "params": {%s}}}
"""
_PARAMS = ', "params": {%s}'
_MAX = '"warmup_max_lr": "auto"'

EXAMPLES = (
    bad("no number of steps", {"ds.json": _TEXT % ("WarmupCosineLR", _PARAMS % '"warmup_num_steps": 10')},
        "ds.json:3 error"),
    bad("accelerate would fill it in", {"ds.json": _AUTO % _MAX}, "ds.json:2 error",
        fixed={"ds.json": _AUTO % f'{_MAX}, "total_num_steps": "auto"'}),
    bad("no parameters at all", {"ds.json": _TEXT % ("WarmupLR", "")}, "ds.json:3 error",
        fixed={"ds.json": _TEXT % ("WarmupLR", _PARAMS % "")}),
    bad("two of them", {"ds.json": _TEXT % ("OneCycle", _PARAMS % "")}, "ds.json:3 error"),
    good("everything has a default", {"ds.json": _TEXT % ("WarmupLR", _PARAMS % "")}),
    good("filled in", {"ds.json": _AUTO % f'{_MAX}, "total_num_steps": "auto"'}),
)  # fmt: skip

_PLACE = "/scheduler/params"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The arguments of the class."""
    view = view_of(doc, context)
    fact, given = class_name(view, "scheduler"), parameters(view, "scheduler")
    if not fact.is_known or given is None or not is_known(view, "scheduler", fact.get()):
        return
    name = fact.get()
    lacking = [word for word in required(SCHEDULES, name) if view.fact(f"{_PLACE}/{word}").is_absent]
    # `null` is no default: the class gets it.
    lacking = [word for word in lacking if not view.has(f"{_PLACE}/{word}")]
    if not lacking and not view.fact(_PLACE).is_absent:
        return
    fix = _fix(view, lacking)
    if not lacking:
        message, hint = f"`{name}` has no `params`", 'Add `"params": {}`'
    else:
        told = " and ".join(f"`{word}`" for word in lacking)
        message, hint = f"`{name}` needs {told}", f'Add it as `"auto"` to `{dotted_key(_PLACE)}`'
        hint = hint if fix else f"Add {told} to `scheduler.params`"
    yield META.finding(
        doc.value(SCHEDULER),
        f"{message}: every rank stops with a `TypeError` when the engine is made",
        hint=hint,
        fix=fix,
        pointer=SCHEDULER,
        facts={"with": "/scheduler"},
    )


def _fix(view: ConfigView, lacking: list[str]) -> Fix | None:
    if not lacking:
        edits = () if view.has(_PLACE) else insert_member(view.doc, "/scheduler", "params", "{}")
        return Fix('Add `"params": {}`', edits) if edits else None
    if lacking != ["total_num_steps"] or view.consumer not in ("hf", "accelerate") or not view.has(_PLACE):
        return None
    edits = insert_member(view.doc, _PLACE, "total_num_steps", '"auto"')
    return Fix('Add `"total_num_steps": "auto"`', edits) if edits else None
