"""**What.** The config names a schedule, and the script passes another one to `deepspeed.initialize`.

**Why it hurts.** DeepSpeed takes the one of the script and does not look at the section: its warm-up and its learning
rates have no effect, silently.

**Fix.** Delete the section, or do not pass a schedule.

**When it stays quiet.** What the script passes is computed and may be nothing; several calls of `deepspeed.initialize`;
transformers and accelerate.

**Evidence.** `_configure_lr_scheduler` in `deepspeed/runtime/engine.py`; the experiment asks the engine for its
schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.plan.handover import short
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import CLIENT

META = RuleMeta(
    code="DSL472",
    name="scheduler-client-overrides",
    kind="plan",
    severity=Severity.WARNING,
    summary="The script passes a schedule, so that the one of the config has no effect",
    depends_on_run=True,
    needs=("config",),
)

_RUN = "deepspeed --num_gpus 8 train.py\n"
_CONFIG = """\
{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}%s}
"""
_OWN = ', "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}'
_STEP = "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)"

EXAMPLES = (
    bad("two schedules", {
        "run.sh": _RUN, "train.py": CLIENT % (_STEP, ", lr_scheduler=schedule"), "ds.json": _CONFIG % _OWN,
    }, "ds.json:1 warning"),
    good("the config has none", {
        "run.sh": _RUN, "train.py": CLIENT % (_STEP, ", lr_scheduler=schedule"), "ds.json": _CONFIG % "",
    }),
    good("the script passes none", {
        "run.sh": _RUN, "train.py": CLIENT % (_STEP, ", lr_scheduler=None"), "ds.json": _CONFIG % _OWN,
    }),
)  # fmt: skip

_SECTION = "/scheduler"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The section and the call."""
    given, doc = plan.handover, plan.config
    if given is None or doc is None or not given.scheduler.is_known:
        return
    fact = view_of(doc, context).word("/scheduler/type")
    if fact.is_known:
        yield META.finding(
            doc.key(_SECTION),
            f"`scheduler` names `{fact.get()}`, but the script passes `{short(given.scheduler.get())}`: this"
            " section has"
            " no effect",
            hint="Delete the section, or do not pass a schedule",
            related=given.ends(given.scheduler),
            pointer=_SECTION,
            facts={"consumer": "deepspeed", "client_scheduler": True, "with": "/optimizer"},
        )
