"""A key of `zero_optimization` under the name of an old release.

**What.** `cpu_offload`, `cpu_offload_param` and `stage3_gather_fp16_weights_on_model_save` are names that DeepSpeed
replaced by `offload_optimizer`, `offload_param` and `stage3_gather_16bit_weights_on_model_save`.

**Why it hurts.** DeepSpeed still translates the old names and logs a warning on every rank. accelerate and transformers
look for the new ones only: with `cpu_offload: true` they do not know that the optimizer is offloaded, keep the
optimizer of torch, and the engine stops with `You are using ZeRO-Offload with a client provided optimizer`.

**Fix.** `--fix` writes the new name: `"offload_optimizer": {"device": "cpu"}` for `cpu_offload: true`. A switch that is
false is deleted. What DeepSpeed makes of the config stays the same.

**When it stays quiet.** A value of another type, which DeepSpeed refuses (`wrong-type`), and old and new name together
(`deprecated-and-new-key`). An old switch that is off is only an information.

**Evidence.** The fields with `deprecated` in `deepspeed/runtime/zero/config.py`, `_process_deprecated_field` in
`deepspeed/runtime/config_utils.py`: the parsed section of 0.19.8 is the same for both names. `_prepare_deepspeed` in
`accelerate/accelerator.py` asks for `zero_optimization.offload_optimizer.device`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.deepspeed.config import truth
from dslint.model.deepspeed.view import view_of
from dslint.model.deepspeed.zerokeys import OLD_NAMES, Old, stated_successor
from dslint.model.edits import delete_member, rename_key, replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL103",
    name="deprecated-zero-key",
    kind="config",
    severity=Severity.WARNING,
    summary="A ZeRO setting under its old name, which accelerate and transformers do not know",
    fix="safe",
    references=("https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training",),
    no_experiment="DeepSpeed makes the same of either name; what accelerate overlooks needs a compiled Adam to show",
    needs=(
        "/zero_optimization/cpu_offload",
        "/zero_optimization/cpu_offload_param",
        "/zero_optimization/stage3_gather_fp16_weights_on_model_save",
    ),
)

_OFFLOAD = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {
    "stage": 2,
    "cpu_offload": true  # the optimizer
  }
}
"""
_GATHER = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {
    "stage": 3,
    "stage3_gather_fp16_weights_on_model_save": true
  }
}
"""

EXAMPLES = (
    bad(
        "offload under its old name",
        {"ds.json": _OFFLOAD},
        "ds.json:5 warning",
        fixed={"ds.json": _OFFLOAD.replace('"cpu_offload": true', '"offload_optimizer": {"device": "cpu"}')},
    ),
    bad(
        "parameters as well",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "cpu_offload_param": true}}\n'},
        "ds.json:1 warning",
        fixed={
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3,'
            ' "offload_param": {"device": "cpu"}}}\n'
        },
    ),
    bad(
        "the weights are 16 bits of either kind",
        {"ds.json": _GATHER},
        "ds.json:5 warning",
        fixed={"ds.json": _GATHER.replace("fp16", "16bit")},
    ),
    bad(
        "an old switch that is off",
        {"ds.json": _OFFLOAD.replace("true  # the optimizer", "false")},
        "ds.json:5 info",
        fixed={"ds.json": _OFFLOAD.replace(',\n    "cpu_offload": true  # the optimizer', "")},
    ),
    good(
        "the new names",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_optimizer": {"device":'
            ' "cpu"},\n  "offload_param": {"device": "cpu"}, "stage3_gather_16bit_weights_on_model_save": true}}\n'
        },
    ),
    good(
        "the old words outside `zero_optimization`",
        {"ds.json": '{"train_batch_size": 8, "_cpu_offload": true, "zero_optimization": {"stage": 2}}\n'},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Old names that stand alone."""
    view = view_of(doc, context)
    for old in OLD_NAMES:
        fact = view.fact(old.pointer)
        if not doc.has(old.pointer) or fact.is_unknown or stated_successor(doc, old) is not None:
            continue
        switch = truth(fact.get()) if fact.is_known else False
        # null is no boolean for the switch of the weights: DeepSpeed refuses it.
        if switch is None or (old.section is None and doc.get(old.pointer) is None):
            continue
        yield _finding(doc, old, switch)


def _finding(doc: DataDoc, old: Old, switch: bool) -> Finding:
    is_auto = doc.get(old.pointer) == "auto"
    fix = None
    if old.section is None:
        effect = "DeepSpeed logs a warning"
        hint = f"Write `{old.new}`"
        # accelerate fills "auto" under the new name only.
        edits = () if is_auto else rename_key(doc, old.pointer, old.new)
    elif switch:
        effect = "accelerate and transformers do not know it"
        hint = f'Write `"{old.new}": {old.section}`'
        edits = _replaced(doc, old)
    else:
        effect = "it is off and does nothing"
        hint = f"Delete `{old.key}`"
        edits = delete_member(doc, old.pointer)
    if edits:
        fix = Fix(hint, edits)
    return META.finding(
        doc.key(old.pointer),
        f"`{old.key}` is the old name of `{old.new}`: {effect}",
        hint=hint,
        fix=fix,
        severity=None if switch or old.section is None else Severity.INFO,
        pointer=old.pointer,
    )


def _replaced(doc: DataDoc, old: Old) -> tuple[Edit, ...]:
    assert old.section is not None
    key, value = rename_key(doc, old.pointer, old.new), replace_value(doc, old.pointer, old.section)
    return (*key, *value) if key and value else ()
