"""Pipeline stages with ZeRO stage 2 or 3.

**What.** The script makes its engine of a `PipelineModule`, or the command passes `--pipeline-model-parallel-size`
above 1 to Megatron-DeepSpeed, and the config says ZeRO stage 2 or 3, or `managed_gradient_accumulation: false`.

**Why it hurts.** Every rank stops in `deepspeed.initialize`: `AssertionError: ZeRO-2 and ZeRO-3 are incompatible with
pipeline parallelism`, or `managed_gradient_accumulation=False is not supported with pipeline parallelism`.

**Fix.** Set `stage` to 1: a pipeline accumulates gradients over micro batches, so they cannot be partitioned.

**When it stays quiet.** Several engines in one script, a model that is made in more than one place, a config that the
script changes, Megatron with `--no-pipeline-parallel`. For Megatron it is a warning: its script is not read.

**Evidence.** `PipelineEngine.__init__` and `DeepSpeedEngine._do_sanity_check`, run with DeepSpeed 0.19.8 on two ranks;
https://github.com/deepspeedai/DeepSpeed/issues/1629, https://github.com/deepspeedai/DeepSpeed/issues/3589
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.deepspeed.history import is_newer_than
from dslint.model.deepspeed.view import ConfigView
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import ARGUMENTS

META = RuleMeta(
    code="DSL475",
    name="pipeline-with-zero-2-or-3",
    kind="plan",
    severity=Severity.ERROR,
    summary="Pipeline stages with ZeRO stage 2 or 3: the engine does not start",
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/1629",
        "https://github.com/deepspeedai/DeepSpeed/issues/3589",
    ),
    depends_on_run=True,
    needs=("config",),
)

_RUN = "deepspeed --num_gpus %s train.py --deepspeed --deepspeed_config ds.json\n"
_STAGES = "deepspeed.pipe.PipelineModule([torch.nn.Linear(8, 8)] * 4, num_stages=2)"
_PIPE = ARGUMENTS.replace("torch.nn.Linear(8, 8)", _STAGES)
_DS = (
    '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},\n'
    ' "zero_optimization": {"stage": %s}%s}\n'
)
_MEGATRON = "deepspeed --num_gpus 8 pretrain.py --pipeline-model-parallel-size %s --deepspeed_config ds.json%s\n"

EXAMPLES = (
    bad("stage 2", {"run.sh": _RUN % 4, "train.py": _PIPE, "ds.json": _DS % (2, "")}, "ds.json:2 error"),
    bad(
        "accumulation by hand",
        {"run.sh": _RUN % 4, "train.py": _PIPE, "ds.json": _DS % (1, ', "managed_gradient_accumulation": false')},
        "ds.json:2 error",
        deepspeed_version="0.19.8",
    ),
    bad("Megatron", {"run.sh": _MEGATRON % (2, ""), "ds.json": _DS % (2, "")}, "ds.json:2 warning"),
    good("stage 1", {"run.sh": _RUN % 4, "train.py": _PIPE, "ds.json": _DS % (1, "")}),
    good("no pipeline", {"run.sh": _RUN % 4, "train.py": ARGUMENTS, "ds.json": _DS % (2, "")}),
    good("Megatron without stages", {"run.sh": _MEGATRON % (1, ""), "ds.json": _DS % (2, "")}),
    good(
        "Megatron without its pipeline",
        {"run.sh": _MEGATRON % (2, " --no-pipeline-parallel"), "ds.json": _DS % (2, "")},
    ),
)

_STAGE = "/zero_optimization/stage"
_MANAGED = "/managed_gradient_accumulation"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The model of one run and its config."""
    found = _pipeline(plan)
    if plan.config is None or plan.config_is_rewritten or found is None:
        return
    severity, place = found
    view = ConfigView(plan.config, replace(context, consumer=plan.consumer))
    if view.stage.get_or(0) in (2, 3):
        at, told = _STAGE, f"ZeRO stage {view.stage.get()} cannot partition the gradients of a pipeline"
        hint = "Set `stage` to 1"
    elif view.fact(_MANAGED).get_or(True) is False and not is_newer_than(_MANAGED, view.version):
        at, told = _MANAGED, "a pipeline needs `managed_gradient_accumulation`, which is false"
        hint = "Delete `managed_gradient_accumulation`"
    else:
        return
    command = plan.command.location.labelled("the command that starts this run")
    yield META.finding(
        view.value(at),
        f"{told}: every rank stops with an `AssertionError`",
        hint=hint,
        related=(place, command) if place.path != command.path else (place,),
        severity=Severity.WARNING if plan.command.in_docs else severity,
        pointer=at,
        facts={"model": "pipeline", "stage": view.stage.get_or(None)},
    )


def _pipeline(plan: RunPlan) -> tuple[Severity, Location] | None:
    engine = plan.profile.engine if plan.profile is not None else None
    if engine is not None:
        return (Severity.ERROR, engine.location) if engine.kind == "pipeline" else None
    command = plan.command
    flag = command.script_flag("--pipeline-model-parallel-size")
    if flag is None or flag.value is None or command.script_flag("--no-pipeline-parallel") is not None:
        return None
    if command.may_hide_flags() or not (flag.value.text or "").isdigit() or int(flag.value.text or "0") < 2:
        return None
    return Severity.WARNING, flag.location.labelled("pipeline stages")
