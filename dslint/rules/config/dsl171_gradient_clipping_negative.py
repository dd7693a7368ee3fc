"""A negative norm to clip gradients to.

**What.** `gradient_clipping` is below zero.

**Why it hurts.** DeepSpeed clips when the value is above zero: a negative one switches clipping off, silently.

**Fix.** Write the norm that is meant, or 0 to say that nothing is clipped.

**When it stays quiet.** Zero, and values that are not known.

**Evidence.** `_take_model_step` in `deepspeed/runtime/engine.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL171",
    name="gradient-clipping-negative",
    kind="config",
    severity=Severity.WARNING,
    summary="A negative `gradient_clipping` switches clipping off",
    fix="unsafe",
    needs=("/gradient_clipping",),
)

_TEXT = '{"train_batch_size": 8, "gradient_clipping": %s, "zero_optimization": {"stage": 1}}\n'

EXAMPLES = (
    bad("below zero", {"ds.json": _TEXT % "-1.0"}, "ds.json:1 warning", fixed={"ds.json": _TEXT % "1.0"}),
    good("off", {"ds.json": _TEXT % "0.0"}),
    good("on", {"ds.json": _TEXT % "1.0"}),
)

_CLIPPING = "/gradient_clipping"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The one value."""
    fact = view_of(doc, context).number(_CLIPPING)
    if not fact.is_known or fact.get() >= 0:
        return
    right = f"{-fact.get()}"
    edits = replace_value(doc, _CLIPPING, right)
    yield META.finding(
        doc.value(_CLIPPING),
        f"`gradient_clipping` is {fact.get()}: DeepSpeed silently clips nothing for a negative value",
        hint=f"Write {right}, or 0 for none",
        fix=Fix(f"Write {right}", edits, Safety.UNSAFE) if edits else None,
        pointer=_CLIPPING,
    )
