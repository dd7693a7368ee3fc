"""An old name and the new name of one ZeRO setting together.

**What.** `cpu_offload` beside `offload_optimizer`, `cpu_offload_param` beside `offload_param`, or
`stage3_gather_fp16_weights_on_model_save` beside `stage3_gather_16bit_weights_on_model_save`.

**Why it hurts.** Every rank stops at start-up with `AssertionError: Cannot provide deprecated parameter 'cpu_offload'
and replacing parameter 'offload_optimizer' together`, also when both say the same and when the old one is false.

**Fix.** Keep the new name. `--fix` deletes the old one where both mean the same, `--unsafe-fixes` also where they
contradict each other.

**When it stays quiet.** One of the two is `"auto"`, which DeepSpeed drops before it compares.

**Evidence.** `_process_deprecated_field` in `deepspeed/runtime/config_utils.py`, seen with the parser of 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.config import truth
from dslint.model.deepspeed.zerokeys import OLD_NAMES, stated_successor
from dslint.model.edits import delete_member
from dslint.parse.data import DataDoc, split_pointer
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL104",
    name="deprecated-and-new-key",
    kind="config",
    severity=Severity.ERROR,
    summary="One ZeRO setting under its old and its new name, which DeepSpeed asserts against",
    fix="safe",
    references=("https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training",),
    needs=(
        "/zero_optimization/cpu_offload",
        "/zero_optimization/cpu_offload_param",
        "/zero_optimization/stage3_gather_fp16_weights_on_model_save",
    ),
)

_BOTH = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {
    "stage": 2,
    "cpu_offload": true,
    "offload_optimizer": {
      "device": "cpu"
    }
  }
}
"""

EXAMPLES = (
    bad(
        "both mean the same",
        {"ds.json": _BOTH},
        "ds.json:5 error",
        fixed={"ds.json": _BOTH.replace('    "cpu_offload": true,\n', "")},
    ),
    bad("they contradict each other", {"ds.json": _BOTH.replace("true", "false")}, "ds.json:5 error"),
    bad(
        "the weights under two names",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3,\n'
            '  "stage3_gather_fp16_weights_on_model_save": true,\n'
            '  "stage3_gather_16bit_weights_on_model_save": true}}\n'
        },
        "ds.json:2 error",
        fixed={
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3,\n'
            '  "stage3_gather_16bit_weights_on_model_save": true}}\n'
        },
    ),
    good("the new name alone", {"ds.json": _BOTH.replace('    "cpu_offload": true,\n', "")}),
    good(
        "two settings",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},\n'
            '  "offload_optimizer": {"device": "cpu"}, "stage3_gather_16bit_weights_on_model_save": true}}\n'
        },
    ),
)


def check(doc: DataDoc, _context: Context) -> Iterator[Finding]:
    """Pairs of old and new names."""
    for old in OLD_NAMES:
        new = stated_successor(doc, old)
        if new is None or not doc.has(old.pointer) or doc.get(old.pointer) == "auto":
            continue
        name = split_pointer(new)[-1]
        edits = delete_member(doc, old.pointer)
        safety = Safety.SAFE if _agree(doc.get(old.pointer), doc.get(new), old.section is not None) else Safety.UNSAFE
        yield META.finding(
            doc.key(old.pointer),
            f"`{old.key}` is the old name of `{name}`: DeepSpeed stops if both are set",
            hint=f"Delete `{old.key}`",
            related=(doc.key(new, "the new name"),),
            fix=Fix(f"Delete `{old.key}`", edits, safety) if edits else None,
            pointer=old.pointer,
            facts={"with": new},
        )


def _agree(old: Any, new: Any, is_section: bool) -> bool:
    """Whether DeepSpeed would make the same of either name."""
    switch = False if old is None else truth(old)
    if not is_section:
        return switch is not None and switch == truth(new)
    device = new.get("device", "none") if isinstance(new, dict) else "none" if new is None else "?"
    return switch is not None and device == ("cpu" if switch else "none")
