"""**What.** A stage-3 config whose `stage3_gather_16bit_weights_on_model_save` is `"auto"`, read by the Trainer of
transformers or by accelerate.

**Why it hurts.** accelerate fills the placeholder with its own switch `zero3_save_16bit_model`, whose default is false,
and not with what stage 3 needs. At the end of the run no usable weights are written: the Trainer saves a partitioned
checkpoint, `accelerator.get_state_dict` raises.

**Fix.** Write `true` (unsafe fix: rank 0 then needs host memory for the whole model at a save).

**When it stays quiet.** A number of the run that is not known: another stage, another reader, a launch command that
passes `--zero3_save_16bit_model` or words that cannot be read, a variable that sets it; a script that changes the
config.

**Evidence.** `DeepSpeedPlugin.__post_init__` in `accelerate/utils/dataclasses.py`, run with accelerate 1.15: the config
holds `false` afterwards. https://github.com/huggingface/transformers/issues/20082
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.contexts import command_flags
from dslint.model.context import Context
from dslint.model.edits import replace_value
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL484",
    name="z3-gather-auto",
    kind="plan",
    severity=Severity.WARNING,
    summary='`"auto"` for gathering the weights of stage 3 becomes false under accelerate and transformers',
    fix="unsafe",
    references=("https://github.com/huggingface/transformers/issues/20082",),
    depends_on_run=True,
    needs=("config",),
)

_KEY = "stage3_gather_16bit_weights_on_model_save"
_POINTER = f"/zero_optimization/{_KEY}"
_VARIABLE = "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"

_DS = f"""\
{{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {{
    "stage": 3,
    "{_KEY}": "auto"
  }}
}}
"""
_RUN = "torchrun --nproc_per_node 8 train.py --output_dir out --deepspeed ds.json\n"
_LAUNCH = _RUN.replace("torchrun --nproc_per_node 8", "accelerate launch --num_processes 8")
_FILES = {"run.sh": _RUN, "train.py": TRAINER, "ds.json": _DS}

EXAMPLES = (
    bad("the Trainer fills in false", _FILES, "ds.json:5", fixed={"ds.json": _DS.replace(': "auto"\n', ": true\n")}),
    bad("under accelerate", {**_FILES, "run.sh": _LAUNCH}, "ds.json:5"),
    good("the command says it", {
        **_FILES,
        "run.sh": _LAUNCH.replace("train.py", "--zero3_save_16bit_model true train.py"),
    }),
    good("the variable says it", {**_FILES, "run.sh": f"export {_VARIABLE}=true\n{_RUN}"}),
    good("stage 2 keeps whole weights", {**_FILES, "ds.json": _DS.replace("3,", "2,")}),
    good("gathered", {**_FILES, "ds.json": _DS.replace(': "auto"\n', ": true\n")}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The placeholder, and who could fill it otherwise."""
    doc = plan.config
    if doc is None or doc.get(_POINTER) != "auto" or plan.zero_stage.get_or(0) != 3 or plan.config_is_rewritten:
        return
    if plan.consumer.get_or("") not in ("hf", "accelerate") or not plan.command.variable(_VARIABLE).is_absent:
        return
    if plan.command.launcher == "accelerate":
        flags = command_flags(plan.command)
        if "" in flags or "zero3_save_16bit_model" in flags:
            return
    if any(peer.is_earlier for peer in plan.peers):
        return
    edits = replace_value(doc, _POINTER, "true")
    yield META.finding(
        doc.value(_POINTER),
        f'`{_KEY}` is `"auto"`, which becomes false: the saved model has no usable weights',
        hint=f"Set `{_KEY}` to true if this run saves its model: accelerate and transformers fill in false",
        related=(plan.command.location.labelled("the command that starts this run"),),
        fix=Fix(f"Set `{_KEY}` to true", edits, Safety.UNSAFE) if edits else None,
        severity=Severity.INFO if plan.command.in_docs else None,
        pointer=_POINTER,
    )
