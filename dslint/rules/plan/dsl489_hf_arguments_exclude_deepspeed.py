"""Arguments of the Trainer that exclude DeepSpeed or each other under DeepSpeed.

**What.** The run passes a DeepSpeed config to the transformers Trainer together with `--fsdp ...`, or with both
`--save_only_model` and `--load_best_model_at_end`.

**Why it hurts.** The Trainer stops at start-up: "Using --fsdp xxx together with --deepspeed is not possible", or
"DeepSpeed is enabled ... can't be used with `save_only_model` along with `load_best_model_at_end`".

**Fix.** Drop one of the two.

**When it stays quiet.** Values that are not known; `--fsdp ""`.

**Evidence.** `Trainer.__init__` in `transformers/trainer.py`; run with transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact, absent
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL489",
    name="hf-arguments-exclude-deepspeed",
    kind="plan",
    severity=Severity.ERROR,
    summary="Arguments of the Trainer that cannot be combined under DeepSpeed",
    depends_on_run=True,
    needs=("config",),
)

_RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out %s\n"
_CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'
_BEST = "--load_best_model_at_end True --save_only_model %s"

EXAMPLES = (
    bad("FSDP as well", {"run.sh": _RUN % "--fsdp full_shard", "train.py": TRAINER, "ds.json": _CONFIG}, "run.sh:1"),
    bad("the best model needs the whole checkpoint", {
        "run.sh": _RUN % (_BEST % "True"), "train.py": TRAINER, "ds.json": _CONFIG,
    }, "run.sh:1"),
    good("no FSDP", {"run.sh": _RUN % '--fsdp ""', "train.py": TRAINER, "ds.json": _CONFIG}),
    good("whole checkpoints", {"run.sh": _RUN % (_BEST % "False"), "train.py": TRAINER, "ds.json": _CONFIG}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Both pairs."""
    if plan.config is None or plan.consumer.get_or("") != "hf":
        return
    severity = Severity.WARNING if plan.command.in_docs else None
    fsdp = _of(plan, "fsdp")
    if fsdp.get_or("") and fsdp.origins:
        yield META.finding(
            fsdp.origins[0],
            f"`fsdp` is `{fsdp.get()}` in a run with a DeepSpeed config: the Trainer accepts only one and stops",
            hint="Drop `--fsdp` or `--deepspeed`",
            related=tuple(o.labelled("the DeepSpeed config") for o in plan.config_path.origins),
            severity=severity,
        )
    only, best = _of(plan, "save_only_model"), _of(plan, "load_best_model_at_end")
    if only.get_or(False) and best.get_or(False) and only.origins:
        yield META.finding(
            only.origins[0],
            "`save_only_model` and `load_best_model_at_end` exclude each other under DeepSpeed: the Trainer stops",
            hint="Drop one of the two",
            related=tuple(o.labelled("the best model is loaded at the end") for o in best.origins),
            severity=severity,
        )


def _of(plan: RunPlan, name: str) -> Fact[object]:
    return plan.arguments.get(name, absent())
