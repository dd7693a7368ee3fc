"""A ZeRO setting that DeepSpeed accepts and does not use.

**What.** `cpu_offload_use_pin_memory`, and `elastic_checkpoint` at stage 3.

**Why it hurts.** Nothing happens: pinned memory is a setting of each offload section, and stage 3 has no elastic
checkpoints. DeepSpeed logs a warning on every rank and continues.

**Fix.** Set `pin_memory` inside `offload_optimizer` or `offload_param`; delete the key.

**When it stays quiet.** A switch that is off and `elastic_checkpoint` at other stages.

**Evidence.** `cpu_offload_use_pin_memory` (`set_new_param` is false) and `elastic_checkpoint_deprecated` in
`deepspeed/runtime/zero/config.py`: the parsed offload sections of 0.19.8 are the same with and without the key.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.deepspeed.zerokeys import SECTION
from dslint.model.edits import delete_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL105",
    name="inert-zero-key",
    kind="config",
    severity=Severity.INFO,
    summary="A ZeRO setting that DeepSpeed accepts and does not use",
    fix="unsafe",
    no_experiment="a key that does nothing: no run shows it",
    needs=("/zero_optimization/cpu_offload_use_pin_memory", "/zero_optimization/elastic_checkpoint"),
)

_PIN = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu", "pin_memory": false},
    "cpu_offload_use_pin_memory": true
  }
}
"""

EXAMPLES = (
    bad(
        "pinned memory is a setting of the section",
        {"ds.json": _PIN},
        "ds.json:6 info",
        fixed={"ds.json": _PIN.replace(',\n    "cpu_offload_use_pin_memory": true', "")},
    ),
    bad(
        "stage 3 has no elastic checkpoints",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "elastic_checkpoint": true,\n'
            '  "stage3_gather_16bit_weights_on_model_save": true}}\n'
        },
        "ds.json:1 info",
    ),
    good("pinned memory where it counts", {"ds.json": _PIN.replace(',\n    "cpu_offload_use_pin_memory": true', "")}),
    good(
        "elastic checkpoints of stage 1",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 1, "elastic_checkpoint": true}}\n'},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The two keys."""
    view = view_of(doc, context)
    pointer = f"{SECTION}/cpu_offload_use_pin_memory"
    if view.flag(pointer).get_or(False):
        yield _finding(
            doc, pointer, "DeepSpeed reads `pin_memory` of each offload section instead",
            "Set `pin_memory` in `offload_optimizer` or `offload_param`",
        )  # fmt: skip
    pointer = f"{SECTION}/elastic_checkpoint"
    if view.flag(pointer).get_or(False) and view.stage.get_or(0) == 3:
        yield _finding(doc, pointer, "ZeRO stage 3 has no elastic checkpoints", "Delete `elastic_checkpoint`")


def _finding(doc: DataDoc, pointer: str, why: str, hint: str) -> Finding:
    key = pointer.rpartition("/")[2]
    edits = delete_member(doc, pointer)
    return META.finding(
        doc.key(pointer),
        f"`{key}` has no effect: {why}",
        hint=hint,
        fix=Fix(f"Delete `{key}`", edits, Safety.UNSAFE) if edits else None,
        pointer=pointer,
    )
