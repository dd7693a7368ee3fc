"""A learning rate schedule of the Trainer beside one of the DeepSpeed config.

**What.** The run passes `--lr_scheduler_type` to the transformers Trainer, and its DeepSpeed config has a `scheduler`
of another shape.

**Why it hurts.** The schedule of the config wins without a message: with `WarmupLR` the learning rate never decays,
whatever the command asks for.

**Fix.** Delete `scheduler` from the config (the Trainer then makes its own), or drop the argument.

**When it stays quiet.** Shapes that mean the same: `linear` and WarmupDecayLR, `constant_with_warmup` (or `constant`)
and WarmupLR, `cosine` and WarmupCosineLR; a default `--lr_scheduler_type`; a config without `scheduler`.

**Evidence.** `deepspeed_optim_sched` in `transformers/integrations/deepspeed.py`: a scheduler of the config is used
and the argument is not looked at; https://github.com/huggingface/transformers/issues/15508
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import absent
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import delete_member
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL488",
    name="hf-scheduler-ignored",
    kind="plan",
    severity=Severity.WARNING,
    summary="`--lr_scheduler_type` that the scheduler of the DeepSpeed config overrules",
    fix="unsafe",
    references=("https://github.com/huggingface/transformers/issues/15508",),
    depends_on_run=True,
    needs=("config",),
)

_RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out --lr_scheduler_type %s\n"
_CONFIG = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
  "zero_optimization": {"stage": 2}
}
"""
_NONE = '{\n  "train_micro_batch_size_per_gpu": "auto",\n  "zero_optimization": {"stage": 2}\n}\n'

EXAMPLES = (
    bad("cosine is requested, and the rate never decays", {
        "run.sh": _RUN % "cosine", "train.py": TRAINER, "ds.json": _CONFIG,
    }, "run.sh:1", fixed={"ds.json": _NONE}),
    good("the same shape", {"run.sh": _RUN % "constant_with_warmup", "train.py": TRAINER, "ds.json": _CONFIG}),
    good("the Trainer makes its own", {"run.sh": _RUN % "cosine", "train.py": TRAINER, "ds.json": _NONE}),
)  # fmt: skip

_SHAPES = {
    "WarmupLR": ("constant_with_warmup", "constant", "the rate never decays"),
    "WarmupDecayLR": ("linear", "linear", "the rate decays linearly"),
    "WarmupCosineLR": ("cosine", "cosine", "the rate decays as a cosine"),
    "OneCycle": ("", "", "it runs one cycle"),
    "LRRangeTest": ("", "", "it runs a range test"),
}


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The schedule that the arguments name, and the one of the config."""
    asked = plan.arguments.get("lr_scheduler_type", absent())
    doc = plan.config
    if doc is None or plan.consumer.get_or("") != "hf" or not asked.origins or not asked.is_known:
        return
    kind = view_of(doc, context).word("/scheduler/type")
    shape = _SHAPES.get(kind.get_or(""))
    if shape is None or asked.get() in shape[:2] or plan.config_is_rewritten:
        return
    edits = delete_member(doc, "/scheduler")
    yield META.finding(
        asked.origins[0],
        f"`lr_scheduler_type` `{asked.get()}` is silently overruled by `{kind.get()}` of the DeepSpeed config:"
        f" {shape[2]}",
        hint="Delete `scheduler` from the config, or drop the argument",
        related=(*(o.labelled("the scheduler that runs") for o in kind.origins),),
        fix=Fix("Delete `scheduler` from the config", edits, Safety.UNSAFE) if edits else None,
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"lr_scheduler_type": asked.get()},
    )
