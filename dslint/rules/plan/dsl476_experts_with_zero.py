"""A model with experts and a ZeRO section that refuses it.

**What.** The script makes its engine of a model with `deepspeed.moe.layer.MoE`, and the config says ZeRO stage 3,
`reduce_scatter: false` at stage 1 or 2, or `contiguous_gradients: false` at stage 2.

**Why it hurts.** Every rank stops in `deepspeed.initialize` with an `AssertionError`.

**Fix.** Use stage 1 or 2, and delete the two switches: both are true by default. `--fix` writes true.

**When it stays quiet.** Several engines in one script, a model made in more than one place, experts under a condition,
a config that the script changes.

**Evidence.** `DeepSpeedEngine._validate_zero3_moe_compatibility` and `DeepSpeedZeroOptimizer._configure_moe_settings`,
run with DeepSpeed 0.19.8 on two ranks; the text of the assertion speaks of stage 2, stage 1 raises it as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import ConfigView
from dslint.model.edits import replace_value
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import ARGUMENTS

META = RuleMeta(
    code="DSL476",
    name="experts-with-zero",
    kind="plan",
    severity=Severity.ERROR,
    summary="A model with experts and a ZeRO section that refuses it",
    fix="safe",
    depends_on_run=True,
    needs=("config",),
)

_RUN = "deepspeed --num_gpus %s train.py --deepspeed --deepspeed_config ds.json\n"
_CLASS = """\
import torch
from deepspeed.moe.layer import MoE


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = MoE(8, torch.nn.Linear(8, 8), num_experts=4)


"""
_MOE = ARGUMENTS.replace("import torch\n\n", _CLASS).replace("torch.nn.Linear(8, 8)\nengine", "Net()\nengine")
_DS = (
    '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},\n'
    ' "zero_optimization": {"stage": %s%s}}\n'
)
_SAVE = ', "stage3_gather_16bit_weights_on_model_save": true'

EXAMPLES = (
    bad("stage 3", {"run.sh": _RUN % 4, "train.py": _MOE, "ds.json": _DS % (3, _SAVE)}, "ds.json:2 error"),
    bad(
        "no reduce-scatter",
        {"run.sh": _RUN % 4, "train.py": _MOE, "ds.json": _DS % (1, ', "reduce_scatter": false')},
        "ds.json:2 error",
        fixed={"ds.json": _DS % (1, ', "reduce_scatter": true')},
    ),
    good("stage 2", {"run.sh": _RUN % 4, "train.py": _MOE, "ds.json": _DS % (2, "")}),
    good("no experts", {"run.sh": _RUN % 4, "train.py": ARGUMENTS, "ds.json": _DS % (3, _SAVE)}),
    good(
        "experts under a condition",
        {
            "run.sh": _RUN % 4,
            "train.py": _MOE.replace(
                "        self.experts", "        if torch.cuda.device_count() > 1:\n            self.experts"
            ),
            "ds.json": _DS % (3, _SAVE),
        },
    ),
)

_SECTION = "/zero_optimization"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The model of one run and its config."""
    engine = plan.profile.engine if plan.profile is not None else None
    if plan.config is None or plan.config_is_rewritten or engine is None or engine.kind != "moe":
        return
    view = ConfigView(plan.config, replace(context, consumer=plan.consumer))
    stage = view.stage.get_or(0)
    refused = ["stage"] if stage == 3 else []
    for name, stages in (("reduce_scatter", (1, 2)), ("contiguous_gradients", (2,))):
        if stage in stages and not view.flag(f"{_SECTION}/{name}").get_or(True):
            refused.append(name)
    for name in refused:
        pointer = f"{_SECTION}/{name}"
        edits = () if name == "stage" else replace_value(plan.config, pointer, "true")
        yield META.finding(
            view.value(pointer),
            (f"ZeRO stage {stage}" if name == "stage" else f"`{name}` is false at ZeRO stage {stage}")
            + ", but the model has experts (`MoE`): every rank stops with an `AssertionError`",
            hint="Set `stage` to 1 or 2" if name == "stage" else f"Set `{name}` to true",
            related=(engine.location, plan.command.location.labelled("the command that starts this run")),
            fix=Fix(f"Set `{name}` to true", edits, Safety.SAFE) if edits else None,
            severity=Severity.WARNING if plan.command.in_docs else None,
            pointer=pointer,
            facts={"model": "moe", "key": name, "stage": stage},
        )
