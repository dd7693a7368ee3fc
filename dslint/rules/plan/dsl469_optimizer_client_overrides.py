"""**What.** The config names an optimizer, and the script passes another one to `deepspeed.initialize`.

**Why it hurts.** DeepSpeed takes the one of the script and does not look at the section: its type, learning rate and
weight decay have no effect, silently.

**Fix.** Delete the section, or do not pass an optimizer.

**When it stays quiet.** What the script passes is computed and may be nothing; several calls of `deepspeed.initialize`;
transformers and accelerate, which compare both themselves.

**Evidence.** `_configure_optimizer` in `deepspeed/runtime/engine.py`; the experiment asks the engine for its optimizer.
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
    code="DSL469",
    name="optimizer-client-overrides",
    kind="plan",
    severity=Severity.WARNING,
    summary="The script passes an optimizer, so that the one of the config has no effect",
    depends_on_run=True,
    needs=("config",),
)

_RUN = "deepspeed --num_gpus 8 train.py\n"
_CONFIG = '{"train_batch_size": 8, "optimizer": {"type": "%s", "params": {"lr": 1e-4}}}\n'
_ADAMW = "optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)"

EXAMPLES = (
    bad("two optimizers", {
        "run.sh": _RUN, "train.py": CLIENT % (_ADAMW, ", optimizer=optimizer"), "ds.json": _CONFIG % "SGD",
    }, "ds.json:1 warning"),
    good("the script passes none", {
        "run.sh": _RUN, "train.py": CLIENT % ("", ", model_parameters=model.parameters()"), "ds.json": _CONFIG % "SGD",
    }),
    good("it may be none", {
        "run.sh": _RUN,
        "train.py": CLIENT % ("optimizer = choose(model)", ", optimizer=optimizer"),
        "ds.json": _CONFIG % "SGD",
    }),
)  # fmt: skip

_SECTION = "/optimizer"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The section and the call."""
    given, doc = plan.handover, plan.config
    if given is None or doc is None or not given.optimizer.is_known:
        return
    fact = view_of(doc, context).word("/optimizer/type")
    if fact.is_known:
        title = short(given.optimizer.get())
        yield META.finding(
            doc.key(_SECTION),
            f"`optimizer` names `{fact.get()}`, but the script passes `{title}` to `deepspeed.initialize`: the section"
            " has no effect",
            hint="Delete the section, or do not pass an optimizer",
            related=given.ends(given.optimizer),
            pointer=_SECTION,
            facts={"consumer": "deepspeed", "client": title},
        )
