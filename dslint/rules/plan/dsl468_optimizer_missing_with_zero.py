"""**What.** A script makes a DeepSpeed engine with ZeRO stage 1 or 2, and neither the config nor the call of
`deepspeed.initialize` names an optimizer.

**Why it hurts.** Every rank stops with `AssertionError: zero stage 2 requires an optimizer` when the engine is made,
after the model was loaded.

**Fix.** Add an `optimizer` section to the config, or pass `optimizer=`.

**When it stays quiet.** Stage 3, which serves inference as well, and stage 0; a script that calls
`deepspeed.initialize` in several places, unpacks its arguments, or computes what it passes.

**Evidence.** `_configure_zero_optimizer` in `deepspeed/runtime/engine.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import CLIENT

META = RuleMeta(
    code="DSL468",
    name="optimizer-missing-with-zero",
    kind="plan",
    severity=Severity.ERROR,
    summary="ZeRO stage 1 or 2, and neither config nor script names an optimizer",
    depends_on_run=True,
    needs=("config",),
)

_RUN = "deepspeed --num_gpus 8 train.py\n"
_CONFIG = '{"train_batch_size": 8, "zero_optimization": {"stage": %d}%s}\n'
_OWN = ', "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}'
_PLAIN = CLIENT % ("", ", model_parameters=model.parameters()")

EXAMPLES = (
    bad("nobody names one", {"run.sh": _RUN, "train.py": _PLAIN, "ds.json": _CONFIG % (2, "")}, "ds.json:1 error"),
    good("the config does", {"run.sh": _RUN, "train.py": _PLAIN, "ds.json": _CONFIG % (2, _OWN)}),
    good("the script does", {
        "run.sh": _RUN,
        "train.py": CLIENT % ("optimizer = torch.optim.AdamW(model.parameters())", ", optimizer=optimizer"),
        "ds.json": _CONFIG % (2, ""),
    }),
    good("inference at stage 3", {"run.sh": _RUN, "train.py": _PLAIN, "ds.json": _CONFIG % (3, "")}),
)  # fmt: skip

_STAGE = "/zero_optimization/stage"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The section and the call."""
    given, doc = plan.handover, plan.config
    if given is None or doc is None or not given.optimizer.is_absent:
        return
    view = view_of(doc, context)
    if view.stage.get_or(0) in (1, 2) and view.fact("/optimizer").is_absent:
        yield META.finding(
            view.nearest(_STAGE),
            f"ZeRO stage {view.stage.get()} needs an optimizer, but neither config nor script names one: every"
            " rank stops",
            hint="Add an `optimizer` section, or pass `optimizer=`",
            related=(given.location.labelled("the call"),),
            pointer=_STAGE,
            facts={"consumer": "deepspeed", "client": ""},
        )
