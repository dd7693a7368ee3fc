"""Evaluation alone, at a ZeRO stage that the Trainer refuses for it.

**What.** The run passes `--do_eval` or `--do_predict` to the transformers Trainer but not `--do_train`, and its
DeepSpeed config has a stage other than 3.

**Why it hurts.** A Trainer that evaluates before it has trained makes an engine for inference, and stops with
`ValueError: ZeRO inference only makes sense with ZeRO Stage 3`: stages 0 to 2 shard optimizer states and gradients,
of which inference has none.

**Fix.** Leave `--deepspeed` out for evaluation (one process holds the model anyway), or use a stage-3 config.

**When it stays quiet.** With `--do_train`; at stage 3 and where the stage is not known; where the command may hide
flags. It is a warning, because a script may train whatever `--do_train` says.

**Evidence.** `deepspeed_init(..., inference=True)` in `transformers/integrations/deepspeed.py`; run with a Trainer of
transformers 5.23 at stages 0, 1, 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact, absent
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL490",
    name="hf-evaluates-without-zero3",
    kind="plan",
    severity=Severity.WARNING,
    summary="Evaluation without training under DeepSpeed: the Trainer refuses every stage but 3",
    depends_on_run=True,
    needs=("config",),
)

_SCRIPT = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(training_args,) = parser.parse_args_into_dataclasses()
trainer = Trainer(model=None, args=training_args)
if training_args.do_train:
    trainer.train()
if training_args.do_eval:
    trainer.evaluate()
"""
_RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out %s\n"
_CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'
_ZERO3 = _CONFIG.replace("2}", '3, "stage3_gather_16bit_weights_on_model_save": true}')

EXAMPLES = (
    bad("evaluation alone", {"run.sh": _RUN % "--do_eval", "train.py": _SCRIPT, "ds.json": _CONFIG}, "run.sh:1"),
    good("after training", {"run.sh": _RUN % "--do_train --do_eval", "train.py": _SCRIPT, "ds.json": _CONFIG}),
    good("stage 3", {"run.sh": _RUN % "--do_eval", "train.py": _SCRIPT, "ds.json": _ZERO3}),
    good("switched off", {"run.sh": _RUN % "--do_eval False", "train.py": _SCRIPT, "ds.json": _CONFIG}),
)

_YES = ("True", "true", "1", "yes")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """What the run is told to do, and its stage."""
    if plan.config is None or plan.consumer.get_or("") != "hf" or plan.command.may_hide_flags():
        return
    stage, trains = plan.zero_stage, _told(plan, "do_train")
    if stage.get_or(3) == 3 or trains.is_unknown or trains.get_or("False") in _YES or plan.config_is_rewritten:
        return
    asked = next((f for f in (_told(plan, "do_eval"), _told(plan, "do_predict")) if f.get_or("False") in _YES), None)
    if asked is None or not asked.origins:
        return
    yield META.finding(
        asked.origins[0],
        f"this run evaluates without training at ZeRO stage {stage.get()}: the Trainer accepts only stage 3 and stops",
        hint="Leave `--deepspeed` out for evaluation, or use a config of stage 3",
        related=tuple(o.labelled(f"ZeRO stage {stage.get()}") for o in stage.origins),
        severity=Severity.INFO if plan.command.in_docs else None,
    )


def _told(plan: RunPlan, name: str) -> Fact[str]:
    return plan.passed.get(name, absent())
