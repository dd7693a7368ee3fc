"""ZeRO with an optimizer that DeepSpeed has not tested it with.

**What.** ZeRO is on and `optimizer.type` is none of Adam, AdamW, Adagrad, Lion and Muon, without
`"zero_allow_untested_optimizer": true`.

**Why it hurts.** Every rank stops with `AssertionError: You are using an untested ZeRO Optimizer` when the engine is
made, after the model was loaded.

**Fix.** Say that you want it (`--unsafe-fixes` does), or take an optimizer that is tested. Optimizers that look at
whole tensors (Lamb's trust ratio) see flat parts of them under ZeRO.

**When it stays quiet.** Unless plain DeepSpeed reads the config: transformers and accelerate set the switch
themselves. A stage that is not known, the optimizers of mup, which make classes of torch.

**Evidence.** `ZERO_SUPPORTED_OPTIMIZERS` in `deepspeed/runtime/zero/utils.py`, `_do_optimizer_sanity_check` in
`deepspeed/runtime/engine.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import OPTIMIZER, caveat, class_name, refused
from dslint.model.deepspeed.signatures import OPTIMIZERS, torch_names
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import insert_member, replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL119",
    name="optimizer-torch-untested-zero",
    kind="config",
    severity=Severity.ERROR,
    summary="ZeRO stops with an optimizer that it was not tested with",
    fix="unsafe",
    consumers=("deepspeed",),
    depends_on_run=True,
    needs=("/optimizer/type",),
)

_TEXT = """\
{"train_batch_size": 8, "optimizer": {"type": "%s", "params": {"lr": 0.1}},
  "zero_optimization": {"stage": %d}%s}
"""
_ALLOWED = ',\n  "zero_allow_untested_optimizer": true'

EXAMPLES = (
    bad(
        "SGD with ZeRO",
        {"ds.json": _TEXT % ("SGD", 2, "")},
        "ds.json:1 error",
        fixed={"ds.json": _TEXT % ("SGD", 2, _ALLOWED)},
        consumer="deepspeed",
    ),
    bad("Lamb with ZeRO", {"ds.json": _TEXT % ("Lamb", 1, "")}, "ds.json:1 error", consumer="deepspeed"),
    good("it is allowed", {"ds.json": _TEXT % ("SGD", 2, _ALLOWED)}, consumer="deepspeed"),
    good("without ZeRO", {"ds.json": _TEXT % ("SGD", 0, "")}, consumer="deepspeed"),
    good("a tested one", {"ds.json": _TEXT % ("Lion", 2, "")}, consumer="deepspeed"),
    good("accelerate allows it itself", {"ds.json": _TEXT % ("SGD", 2, "")}, consumer="accelerate"),
)

_ALLOW = "/zero_allow_untested_optimizer"
_TESTED = ("adam", "adamw", "adagrad", "lion", "muon")


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The optimizer beside the stage."""
    view = view_of(doc, context)
    fact, allowed = class_name(view, "optimizer"), view.fact(_ALLOW)
    severity = refused(view)
    if severity is None or not fact.is_known or view.stage.get_or(0) < 1:
        return
    if not allowed.is_absent and (allowed.is_unknown or allowed.get()):
        return
    name = fact.get()
    if name in _TESTED or name.startswith("mu") or not (name == "lamb" or name in torch_names(OPTIMIZERS)):
        return
    stands = doc.has(_ALLOW)
    edits = replace_value(doc, _ALLOW, "true") if stands else insert_member(doc, "", _ALLOW[1:], "true")
    yield META.finding(
        doc.value(OPTIMIZER),
        f"ZeRO stage {view.stage.get()} refuses the untested `{view.raw(OPTIMIZER)}`: every rank stops when the engine"
        f" is made{caveat(severity)}",
        hint=f"Set `{_ALLOW[1:]}` to true, or use AdamW",
        related=tuple(place.labelled("the stage") for place in view.stage.origins),
        fix=Fix(f"Set `{_ALLOW[1:]}` to true", edits, Safety.UNSAFE) if edits else None,
        severity=severity,
        pointer=OPTIMIZER,
        facts={"consumer": "deepspeed", "with": "/zero_optimization/stage"},
    )
