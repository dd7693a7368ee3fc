"""A way to scale or sum gradients that the ZeRO stage refuses.

**What.** `prescale_gradients` or a `gradient_predivide_factor` other than 1 with ZeRO stage 2 or 3 (before 0.13 stage 1
as well) while `reduce_scatter` is on, which is the default; `"gradient_allreduce_op": "sum"` with stage 3, ZenFlow or
DeepCompile.

**Why it hurts.** Every rank stops at start-up: `pre-scale gradients is not yet supported with ZeRO-2 with reduce
scatter enabled`, or `ValueError: gradient_allreduce_op='sum' is not supported with ZeRO stage 3`.

**Fix.** Delete the key, or set `reduce_scatter` to false. With a mean, the scale of gradients does not change the
result; it only moves roundings.

**When it stays quiet.** Stages 0 and 1, `reduce_scatter` false, a stage 2 that sums, values that are not known.

**Evidence.** `deepspeed/runtime/zero/stage_1_and_2.py`, `deepspeed/runtime/zero/stage3.py`, `_do_error_check` in
`deepspeed/runtime/config.py`; https://github.com/deepspeedai/DeepSpeed/pull/4964
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import delete_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL172",
    name="gradient-scaling-with-zero",
    kind="config",
    severity=Severity.ERROR,
    summary="The ZeRO stage refuses how gradients are scaled or summed",
    fix="unsafe",
    references=("https://github.com/deepspeedai/DeepSpeed/pull/4964",),
    depends_on_run=True,
    needs=("/gradient_allreduce_op", "/prescale_gradients", "/gradient_predivide_factor"),
)

_TEXT = '{"train_batch_size": 8, %s"zero_optimization": {"stage": %d%s}}\n'
_PRE, _FACTOR, _SUM = (
    '"prescale_gradients": true, ',
    '"gradient_predivide_factor": 2.0, ',
    '"gradient_allreduce_op": "sum", ',
)
_OFF = ', "reduce_scatter": false'

EXAMPLES = (
    bad("scaled before", {"ds.json": _TEXT % (_PRE, 2, "")}, "ds.json:1 error",
        fixed={"ds.json": _TEXT % ("", 2, "")}),
    bad("divided before", {"ds.json": _TEXT % (_FACTOR, 3, "")}, "ds.json:1 error",
        fixed={"ds.json": _TEXT % ("", 3, "")}),
    bad("stage 1 of an old release", {"ds.json": _TEXT % (_PRE, 1, "")}, "ds.json:1 error", deepspeed_version="0.12.6"),
    bad("a sum at stage 3", {"ds.json": _TEXT % (_SUM, 3, "")}, "ds.json:1 error", deepspeed_version="0.19.8"),
    good("stage 1", {"ds.json": _TEXT % (_PRE, 1, "")}, deepspeed_version="0.19.8"),
    good("no reduce scatter", {"ds.json": _TEXT % (_PRE, 2, _OFF)}),
    good("a factor of 1", {"ds.json": _TEXT % (_FACTOR.replace("2.0", "1.0"), 2, "")}),
    good("a sum at stage 2", {"ds.json": _TEXT % (_PRE + _SUM, 2, "")}, deepspeed_version="0.19.8"),
)  # fmt: skip

_OPERATION, _SCATTER = "/gradient_allreduce_op", "/zero_optimization/reduce_scatter"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The keys beside the stage."""
    view = view_of(doc, context)
    operation = view.word(_OPERATION)
    # Older releases drop the key.
    sums = operation.get_or("mean").casefold() == "sum" and view.runs(">=0.19.6") != "no"
    stage = view.stage.get_or(0)
    refuser = _refuses_sums(view, stage) if sums else ""
    if refuser:
        yield _finding(view, _OPERATION, f"`gradient_allreduce_op` `sum` is not supported by {refuser}")
    scatter = view.flag(_SCATTER)
    old = stage == 1 and view.runs("<0.13.0") == "yes"
    if not (stage >= 2 or old) or (stage < 3 and (sums or operation.is_unknown)):
        return
    if not scatter.is_absent and not (scatter.is_known and scatter.get()):
        return
    where = f"ZeRO stage {stage} with `reduce_scatter`" + (f" in {version_named(view.version)}" if old else "")
    if view.fact("/prescale_gradients").get_or(False) is True:
        yield _finding(view, "/prescale_gradients", f"`prescale_gradients` is not supported by {where}", old)
    factor = view.number("/gradient_predivide_factor")
    if factor.get_or(1) != 1:
        told = f"`gradient_predivide_factor` is {factor.get()}, but {where} supports only 1"
        yield _finding(view, "/gradient_predivide_factor", told, old)


def _refuses_sums(view: ConfigView, stage: int) -> str:
    if stage == 3:
        return "ZeRO stage 3"
    if isinstance(view.raw("/zero_optimization/zenflow"), dict):
        return "ZenFlow"
    return "DeepCompile" if view.flag("/compile/deepcompile").get_or(False) else ""


def _finding(view: ConfigView, pointer: str, message: str, old: bool = False) -> Finding:
    edits, key = delete_member(view.doc, pointer), pointer[1:]
    return META.finding(
        view.key(pointer),
        f"{message}: every rank stops at start-up",
        hint=f"Delete `{key}`" + ("" if pointer == _OPERATION else ", or set `reduce_scatter` to false"),
        related=(*(place.labelled("the stage") for place in view.stage.origins), *version_origin(view.version)),
        fix=Fix(f"Delete `{key}`", edits, Safety.UNSAFE) if edits else None,
        pointer=pointer,
        facts={
            "with": "/zero_optimization",
            "shows": "parse" if pointer == _OPERATION else "engine",
            **({"since": "0.13.0"} if old else {}),
        },
    )
