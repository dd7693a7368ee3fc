"""A key that occurs twice in one object of a DeepSpeed config.

**What.** JSON readers disagree about doubled keys; DeepSpeed loads its config with a hook that refuses them.

**Why it hurts.** `deepspeed.initialize` stops with `ValueError: Duplicate keys in DeepSpeed config`. transformers and
accelerate read the file with plain `json.load`, where the later value wins silently, as it does in a dict that a
script hands over.

**Fix.** Delete one of the two.

**When it stays quiet.** The same key in different objects.

**Evidence.** `dict_raise_error_on_duplicate_keys` in `deepspeed/runtime/config_utils.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.config import consumer_of
from dslint.parse.data import DataDoc, split_pointer
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL111",
    name="duplicate-key",
    kind="config",
    severity=Severity.ERROR,
    summary="A key that occurs twice: DeepSpeed refuses the file, transformers takes the second value",
)

EXAMPLES = (
    bad(
        "two stages",
        {
            "ds.json": '{\n  "train_batch_size": 8,\n  "zero_optimization": {\n'
            '    "stage": 2,\n    "overlap_comm": false,\n    "stage": 1\n  }\n}\n'
        },
        "ds.json:6 error",
    ),
    bad(
        "transformers takes the second one",
        {
            "ds.json": '{\n  "train_batch_size": "auto",\n  "zero_optimization": {"stage": 2},\n'
            '  "zero_optimization": {"stage": 1}\n}\n'
        },
        "ds.json:4 warning",
    ),
    good(
        "the same key in two sections",
        {"ds.json": '{"train_batch_size": 8, "fp16": {"enabled": false}, "bf16": {"enabled": true}}\n'},
    ),
    good(
        "the same key in two objects of a list",
        {"ds.json": '{"train_batch_size": 8, "_runs": [{"stage": 1}, {"stage": 2}]}\n'},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Doubled keys anywhere in the document."""
    if not isinstance(doc.data, dict):
        return
    lenient = consumer_of(doc, context) in ("hf", "accelerate")
    for duplicate in doc.duplicates:
        key = split_pointer(duplicate.pointer)[-1]
        message = f"`{key}` occurs twice in one object, and DeepSpeed stops with `Duplicate keys in DeepSpeed config`"
        if doc.dialect == "yaml":
            message = f"`{key}` occurs twice in one mapping: PyYAML keeps the second value, OmegaConf stops"
        elif doc.dialect != "json":
            message = f"`{key}` occurs twice in one dict: Python silently keeps the second value"
        elif lenient:
            message = f"`{key}` occurs twice in one object: transformers silently uses the second value"
        yield META.finding(
            doc.source.location(duplicate.second),
            message,
            hint="Delete one of the two",
            related=(doc.source.location(duplicate.first, "the first one"),),
            severity=Severity.WARNING if lenient or doc.dialect != "json" else Severity.ERROR,
            pointer=duplicate.pointer,
        )
