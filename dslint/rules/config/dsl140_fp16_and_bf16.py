"""fp16 and bf16 switched on together.

**What.** A config with `fp16.enabled` and `bf16.enabled` both true.

**Why it hurts.** Every rank stops with `AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled`.
Under the Trainer of transformers it stops before that: its arguments can agree with one of the two only.

**Fix.** Keep one: bf16 on GPUs that have it (Ampere and newer), fp16 on older ones.

**When it stays quiet.** One of the two is false, missing or `"auto"`, which transformers sets to fit its arguments.

**Evidence.** `DeepSpeedConfig._initialize_params` in `deepspeed/runtime/config.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.config import flag
from dslint.model.deepspeed.precision import bf16_section
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL140",
    name="fp16-and-bf16",
    kind="config",
    severity=Severity.ERROR,
    summary="fp16 and bf16 are both enabled, which DeepSpeed asserts against",
)

EXAMPLES = (
    bad(
        "both are on",
        {"ds.json": '{\n  "train_batch_size": 8,\n  "fp16": {"enabled": true},\n  "bf16": {"enabled": true}\n}\n'},
        "ds.json:4 error",
    ),
    bad(
        "the old name of bf16 counts as well",
        {"ds.json": '{\n  "train_batch_size": 8,\n  "fp16": {"enabled": true},\n  "bfloat16": {"enabled": true}\n}\n'},
        "ds.json:4 error",
    ),
    good(
        "transformers decides",
        {
            "ds.json": '{"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},\n'
            '  "zero_optimization": {"stage": 1}}\n'
        },
    ),
    good(
        "one is off",
        {"ds.json": '{"train_batch_size": 8, "fp16": {"enabled": false}, "bf16": {"enabled": true}}\n'},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both switches of one config."""
    section = bf16_section(view_of(doc, context))
    pointer = f"{section}/enabled"
    half, brain = flag(doc, ("/fp16/enabled",)), flag(doc, (pointer,))
    if half.get_or(False) and brain.get_or(False):
        message = f"`{section[1:]}` and `fp16` are both enabled: DeepSpeed allows only one and stops at start-up"
        yield META.finding(
            doc.value(pointer),
            message,
            hint="Keep one: `bf16` on GPUs that support it, `fp16` on older ones",
            related=(doc.value("/fp16/enabled", "fp16 is enabled here"),),
            pointer=pointer,
        )
