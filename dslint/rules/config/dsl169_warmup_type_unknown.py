"""A shape of the warm-up that DeepSpeed does not have.

**What.** `scheduler.params.warmup_type` is neither `log` nor `linear`.

**Why it hurts.** DeepSpeed writes a warning and warms up by logarithm: half of the learning rate is reached after a few
steps already.

**Fix.** Write `linear` or `log` (which is also what DeepSpeed does when nothing is said). `--fix` corrects the case of
letters.

**When it stays quiet.** Other schedules than the warm-up ones, values that are not known.

**Evidence.** `WarmupLR.__init__` in `deepspeed/runtime/lr_schedules.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import class_name
from dslint.model.deepspeed.suggest import closest
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL169",
    name="warmup-type-unknown",
    kind="config",
    severity=Severity.WARNING,
    summary="An unknown `warmup_type`: DeepSpeed warms up by logarithm instead",
    fix="safe",
    depends_on_run=True,
    needs=("/scheduler/params/warmup_type",),
)

_TEXT = '{\n  "train_batch_size": 8,\n  "scheduler": {"type": "WarmupLR", "params": {"warmup_type": %s}}\n}\n'

EXAMPLES = (
    bad("capital letters", {"ds.json": _TEXT % '"Linear"'}, "ds.json:3 warning", fixed={"ds.json": _TEXT % '"linear"'}),
    bad("there is no such shape", {"ds.json": _TEXT % '"cosine"'}, "ds.json:3 warning"),
    good("a straight line", {"ds.json": _TEXT % '"linear"'}),
    good("by logarithm", {"ds.json": _TEXT % '"log"'}),
)

_TYPE, _KNOWN = "/scheduler/params/warmup_type", ("log", "linear")


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The shape of a warm-up."""
    view = view_of(doc, context)
    fact = view.word(_TYPE)
    if not class_name(view, "scheduler").get_or("").startswith("Warmup") or fact.get_or("log") in _KNOWN:
        return
    value = fact.get()
    same = next((word for word in _KNOWN if word == value.strip().casefold()), None)
    right = same or closest(value, ("linear",))
    edits = replace_value(doc, _TYPE, f'"{right}"') if right else ()
    yield META.finding(
        doc.value(_TYPE),
        f"`warmup_type` `{value}` is neither `log` nor `linear`: DeepSpeed warms up logarithmically and only logs it",
        hint=f"Write `{right}`" if right else "Write `linear` or `log`",
        fix=Fix(f"Write `{right}`", edits, Safety.SAFE if same else Safety.UNSAFE) if edits else None,
        pointer=_TYPE,
        # Without a shape that is meant there is nothing to compare with.
        facts={"with": "/scheduler", "shows": "effect" if right else "log"},
    )
