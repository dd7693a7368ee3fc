"""**What.** The YAML file of accelerate fixes `gradient_accumulation_steps` or `gradient_clipping`, and the Trainer of
transformers has another number in `--gradient_accumulation_steps` or `--max_grad_norm` (default 1.0).

**Why it hurts.** accelerate writes its number into the DeepSpeed config, the Trainer compares: `ValueError: Please
correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds
gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2`, when training starts.

**Fix.** Delete the line from the YAML file: the Trainer's number then rules.

**When it stays quiet.** Equal numbers; `auto`; numbers that a flag of `accelerate launch` replaces or that cannot be
read; a default of the Trainer that is not certain; scripts without the Trainer; a DeepSpeed config file.

**Evidence.** `HfTrainerDeepSpeedConfig.trainer_config_process` of transformers after `DeepSpeedPlugin.__post_init__` of
accelerate, run with transformers 5 and accelerate 1.15: 4 against 2 raises, 4 against 4 and no line do not.
https://github.com/hiyouga/LlamaFactory/issues/201
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.plans import view_of_plan
from dslint.model.accelerate.view import AccelerateView
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.model.yamledits import delete_member
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL481",
    name="accelerate-value-differs",
    kind="plan",
    severity=Severity.ERROR,
    summary="Accumulation steps or clipping in the YAML file of accelerate differ from the argument of the Trainer",
    fix="unsafe",
    references=("https://github.com/hiyouga/LlamaFactory/issues/201",),
    depends_on_run=True,
    needs=("accelerate",),
)

_YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  gradient_accumulation_steps: 4
  zero_stage: 2
"""
_RUN = "accelerate launch --config_file zero2.yaml train.py --output_dir out --gradient_accumulation_steps 2\n"
_CLIP = _YAML.replace("gradient_accumulation_steps: 4", "gradient_clipping: 0.5")

EXAMPLES = (
    bad("4 steps here, 2 there", {"zero2.yaml": _YAML, "run.sh": _RUN, "train.py": TRAINER}, "zero2.yaml:6",
        fixed={"zero2.yaml": _YAML.replace("  gradient_accumulation_steps: 4\n", "")}),
    bad("the default of `max_grad_norm` is 1.0", {"zero2.yaml": _CLIP, "run.sh": _RUN, "train.py": TRAINER},
        "zero2.yaml:6"),
    good("the same number", {"zero2.yaml": _YAML, "run.sh": _RUN.replace(" 2\n", " 4\n"), "train.py": TRAINER}),
    good("left to the Trainer", {"zero2.yaml": _YAML.replace(": 4", ": auto"), "run.sh": _RUN, "train.py": TRAINER}),
    good("a flag replaces it", {
        "zero2.yaml": _YAML,
        "run.sh": _RUN.replace("train.py", "--gradient_accumulation_steps 2 train.py"),
        "train.py": TRAINER,
    }),
    good("no number is passed, and the default is not certain", {
        "zero2.yaml": _YAML,
        "run.sh": _RUN.replace(" --gradient_accumulation_steps 2", ' "$@"'),
        "train.py": TRAINER,
    }),
)  # fmt: skip

_PAIRS = {"gradient_accumulation_steps": "gradient_accumulation_steps", "gradient_clipping": "max_grad_norm"}


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Both numbers of one run."""
    view = view_of_plan(plan, context)
    if view is None or not view.is_deepspeed or plan.consumer.get_or("") != "hf":
        return
    if not view.config_file.is_absent or not plan.config_path.is_absent:
        return
    for name, argument in _PAIRS.items():
        ours, theirs = _number(view.stated(name)), plan.arguments.get(argument)
        value = _number(theirs) if theirs is not None else None
        if ours is not None and value is not None and theirs is not None and ours != value:
            yield _finding(plan, view, name, argument, theirs)


def _number(fact: Fact[Any]) -> float | None:
    try:
        return float(fact.get()) if fact.is_known and not isinstance(fact.get(), bool) else None
    except (TypeError, ValueError):
        return None


def _finding(plan: RunPlan, view: AccelerateView, name: str, argument: str, theirs: Fact[Any]) -> Finding:
    pointer = view.pointer(name)
    edits = delete_member(view.doc, pointer)
    source = f"{theirs.get()}" if theirs.origins else f"{theirs.get()} by default"
    places = tuple(place.labelled(f"{argument} {theirs.get()}") for place in theirs.origins)
    return META.finding(
        view.doc.value(pointer),
        f"`{name}` is {view.doc.get(pointer)} here but `{argument}` of the Trainer is {source}: it stops with a "
        "ValueError",
        hint="Delete the line: the number of the Trainer then counts",
        related=(*places, plan.command.location.labelled("the command that starts this run")),
        fix=Fix("Delete the line", edits, Safety.UNSAFE) if edits else None,
        severity=Severity.WARNING if plan.command.in_docs else view.severity(Severity.ERROR),
        pointer=pointer,
        facts={"argument": argument, "value": theirs.get()},
    )
