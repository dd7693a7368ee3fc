"""An optimizer of the Trainer that ZeRO-Offload replaces.

**What.** The run passes `--optim sgd` (or rmsprop, adafactor, adagrad) to the transformers Trainer, and its DeepSpeed
config offloads the optimizer to the CPU without an `optimizer` section of its own.

**Why it hurts.** accelerate replaces the optimizer by one of DeepSpeed's CPU classes, without a message: SGD and
RMSprop become DeepSpeedCPUAdam at the same learning rate, so that another algorithm trains the model. With adafactor
and adagrad the first step, or the start, stops with a `TypeError`.

**Fix.** Use AdamW, or set `"zero_force_ds_cpu_optimizer": false` in the config to keep the optimizer that was asked
for.

**When it stays quiet.** AdamW in all its forms; an `optimizer` section (then the Trainer's choice is not used at
all); `zero_force_ds_cpu_optimizer` false; no offload; a default `--optim`.

**Evidence.** `map_pytorch_optim_to_deepspeed` in `accelerate/utils/deepspeed.py`; run with a Trainer of transformers
5.23, accelerate 1.15 and DeepSpeed 0.19.8: `sgd` and `rmsprop` trained with DeepSpeedCPUAdam, `adafactor` and
`adagrad` raised.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import absent
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import insert_member
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL487",
    name="hf-optimizer-swapped",
    kind="plan",
    severity=Severity.ERROR,
    summary="An optimizer of the Trainer that ZeRO-Offload silently replaces by Adam, or that stops the run",
    fix="unsafe",
    depends_on_run=True,
    needs=("config",),
)

_RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out --bf16 True --optim %s\n"
_CONFIG = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}
"""
_KEPT = _CONFIG.replace('"cpu"}}\n', '"cpu"}},\n  "zero_force_ds_cpu_optimizer": false\n')

EXAMPLES = (
    bad("SGD becomes Adam", {"run.sh": _RUN % "sgd", "train.py": TRAINER, "ds.json": _CONFIG}, "run.sh:1",
        fixed={"ds.json": _KEPT}),
    bad("adafactor stops", {"run.sh": _RUN % "adafactor", "train.py": TRAINER, "ds.json": _CONFIG}, "run.sh:1"),
    good("AdamW", {"run.sh": _RUN % "adamw_torch", "train.py": TRAINER, "ds.json": _CONFIG}),
    good("the optimizer is kept", {"run.sh": _RUN % "sgd", "train.py": TRAINER, "ds.json": _KEPT}),
    good("no offload", {
        "run.sh": _RUN % "sgd", "train.py": TRAINER, "ds.json": _CONFIG.replace('"cpu"', '"none"'),
    }),
)  # fmt: skip

_BECOMES_ADAM = ("sgd", "rmsprop")
_STOPS = ("adafactor", "adagrad")


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The optimizer that the arguments name, and the offload of the config."""
    optim = plan.arguments.get("optim", absent())
    doc = plan.config
    if doc is None or plan.consumer.get_or("") != "hf" or optim.get_or("") not in (*_BECOMES_ADAM, *_STOPS):
        return
    view = view_of(doc, context)
    device = view.word("/zero_optimization/offload_optimizer/device")
    forced = view.fact("/zero_force_ds_cpu_optimizer")
    if device.get_or("none") == "none" or not view.fact("/optimizer").is_absent:
        return
    if forced.is_unknown or forced.get_or(True) is not True or plan.config_is_rewritten:
        return
    if optim.get() in _BECOMES_ADAM:
        effect = "accelerate silently trains with DeepSpeedCPUAdam instead"
    else:
        effect = "accelerate's replacement class raises `TypeError`"
    edits = insert_member(doc, "", "zero_force_ds_cpu_optimizer", "false")
    yield META.finding(
        optim.origins[0] if optim.origins else plan.command.location,
        f"`optim` is `{optim.get()}`, but the optimizer is offloaded to the {device.get()}: {effect}",
        hint='Use AdamW, or set `"zero_force_ds_cpu_optimizer": false`',
        related=tuple(o.labelled("the optimizer is offloaded here") for o in device.origins),
        fix=Fix('Add `"zero_force_ds_cpu_optimizer": false`', edits, Safety.UNSAFE) if edits else None,
        severity=Severity.WARNING if plan.command.in_docs else None,
        facts={"optim": optim.get()},
    )
