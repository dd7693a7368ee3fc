"""**What.** The config switches ZeRO on, and the script passes an optimizer that DeepSpeed has not tested it with.

**Why it hurts.** Every rank stops with `AssertionError: You are using an untested ZeRO Optimizer` when the engine is
made, after the model was loaded.

**Fix.** Set `zero_allow_untested_optimizer` to true (`--unsafe-fixes` does), or pass an optimizer that is tested: Adam,
AdamW and Adagrad of torch, DeepSpeed's own.

**When it stays quiet.** The switch is there; what the script passes is computed; several calls of
`deepspeed.initialize`; transformers and accelerate, which set the switch.

**Evidence.** `ZERO_SUPPORTED_OPTIMIZERS` in `deepspeed/runtime/zero/utils.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import insert_member, replace_value
from dslint.model.plan.handover import short
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import CLIENT

META = RuleMeta(
    code="DSL471",
    name="optimizer-client-untested-zero",
    kind="plan",
    severity=Severity.ERROR,
    summary="ZeRO with an optimizer of the script that it was not tested with",
    fix="unsafe",
    depends_on_run=True,
    needs=("config",),
    supersedes=("DSL607",),
)

_RUN = "deepspeed --num_gpus 8 train.py\n"
_CONFIG = '{"train_batch_size": 8, "zero_optimization": {"stage": %d}%s}\n'
_SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
_GIVEN, _ALLOWED = ", optimizer=optimizer", ', "zero_allow_untested_optimizer": true'

EXAMPLES = (
    bad("SGD", {
        "run.sh": _RUN, "train.py": CLIENT % (_SGD, _GIVEN), "ds.json": _CONFIG % (1, ""),
    }, "ds.json:1 error", fixed={"ds.json": _CONFIG % (1, _ALLOWED)}),
    good("it is allowed", {
        "run.sh": _RUN, "train.py": CLIENT % (_SGD, _GIVEN), "ds.json": _CONFIG % (1, _ALLOWED),
    }),
    good("a tested one", {
        "run.sh": _RUN, "train.py": CLIENT % (_SGD.replace("SGD", "AdamW"), _GIVEN), "ds.json": _CONFIG % (1, ""),
    }),
    good("without ZeRO", {"run.sh": _RUN, "train.py": CLIENT % (_SGD, _GIVEN), "ds.json": _CONFIG % (0, "")}),
)  # fmt: skip

_STAGE, _SWITCH = "/zero_optimization/stage", "zero_allow_untested_optimizer"
_TESTED = ("torch.optim.Adam", "torch.optim.AdamW", "torch.optim.Adagrad")


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The stage and the call."""
    given, doc = plan.handover, plan.config
    if given is None or doc is None or not given.optimizer.get_or("").startswith("torch.optim."):
        return
    view, title = view_of(doc, context), given.optimizer.get()
    switch = view.fact(f"/{_SWITCH}")
    if title in _TESTED or view.stage.get_or(0) == 0 or switch.is_unknown or switch.get_or(False):
        return
    edits = (
        replace_value(doc, f"/{_SWITCH}", "true") if doc.has(f"/{_SWITCH}") else insert_member(doc, "", _SWITCH, "true")
    )
    yield META.finding(
        view.nearest(_STAGE),
        f"ZeRO stage {view.stage.get()} refuses the untested `{title}` of the script: every rank stops when the"
        " engine is "
        "made",
        hint=f"Set `{_SWITCH}` to true, or pass AdamW",
        related=given.ends(given.optimizer),
        fix=Fix(f"Set `{_SWITCH}` to true", edits, Safety.UNSAFE) if edits else None,
        pointer=_STAGE,
        facts={"consumer": "deepspeed", "client": short(title)},
    )
