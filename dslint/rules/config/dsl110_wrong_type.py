"""A value that DeepSpeed cannot use: wrong type, outside the allowed values or range.

**What.** Numbers and booleans in quotes where DeepSpeed does not convert them, a section that is not an object, a stage
other than 0 to 3, an unknown device or data type, a bucket size of zero.

**Why it hurts.** Sections with a pydantic model stop with a `ValidationError`. Everything else is used as it is: a
batch size in quotes stops with `unsupported operand type(s) for //: 'str' and 'int'` at start-up, a clipping value in
quotes with `'>' not supported between instances of 'str' and 'float'` at the first step, and `"false"` in quotes
counts as true. `tensor_parallel.autotp_size` as text stops although its section is validated, because
`deepspeed.initialize` compares it before; `1.0` for one of the two profiler switches stops where it stays a fraction (a
Python dict, transformers, accelerate), because DeepSpeed joins them with `|`.

**Fix.** `--fix` takes the quotes away, writes a word as DeepSpeed spells it (`"CPU"`, `"float16"`), and an object for
its short form (`"fp16": true`, `"zero_optimization": 2`, `"offload_optimizer": "cpu"`).

**When it stays quiet.** What pydantic converts in its sections (`"5"`, `2.0`, `"yes"`, `1`), and 1 and 0 for a
boolean elsewhere, save where the type itself is looked at (`pipeline.pipe_partitioned`). `"auto"`, which
transformers and accelerate fill in. Placeholders of templates. `1.0` for a profiler switch in a file that DeepSpeed
reads itself: its reader makes 1 of it. Values below zero in the batch sizes, which
`batch-inconsistent` reports. Where nothing was seen to break, an odd type is a warning, and so are quotes in a
section that only some feature reads (`aio`, `autotuning`, `flops_profiler`). A value that the DeepSpeed release of the
project still accepts is an information that an upgrade breaks, and a warning where a range allows both.

**Evidence.** `get_scalar_param` in `deepspeed/runtime/config_utils.py`, `DeepSpeedZeroConfig` in
`deepspeed/runtime/zero/config.py`; https://github.com/deepspeedai/DeepSpeed/issues/1270
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.accidents import Accident, accidents
from dslint.model.deepspeed.batch import MICRO, TRAIN
from dslint.model.deepspeed.judged import Judged, judged
from dslint.model.deepspeed.values import choice, listed, section, stops_parser, unquoted
from dslint.model.deepspeed.wrongvalue import (
    BATCH_PLACES,
    BUILT,
    consequence,
    is_as_good,
    is_compared,
    is_computed_with,
    is_divisor,
    is_lowered,
    is_open,
    is_used,
)
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc, dotted_key
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL110",
    name="wrong-type",
    kind="config",
    severity=Severity.ERROR,
    summary="A value whose type, choice or range DeepSpeed cannot use",
    fix="safe",
    references=("https://github.com/deepspeedai/DeepSpeed/issues/1270",),
    depends_on_run=True,
)

_QUOTED = """\
{
  "train_batch_size": "32",
  "prescale_gradients": "false",
  "fp16": true
}
"""

EXAMPLES = (
    bad(
        "quotes, and a section that is no object",
        {"ds.json": _QUOTED},
        ("ds.json:2 error", "ds.json:3 error", "ds.json:4 error"),
        fixed={
            "ds.json": '{\n  "train_batch_size": 32,\n  "prescale_gradients": false,\n  "fp16": {"enabled": true}\n}\n'
        },
    ),
    bad(
        "there is no stage 4",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 4}}\n'},
        "ds.json:1 error",
    ),
    bad(
        "devices are written in small letters",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2,\n'
            '  "offload_optimizer": {"device": "CPU"}}}\n'
        },
        "ds.json:2 error",
    ),
    bad(
        "a part of a sample",
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1.5, "zero_optimization": {"stage": 1}}\n'},
        "ds.json:1 warning",
    ),
    bad(
        "nothing to clip at",
        {"ds.json": '{"train_batch_size": 8, "gradient_clipping": null}\n'},
        "ds.json:1 error",
    ),
    bad(
        "one module in a list of its own",
        {"ds.json": '{"train_batch_size": 8, "data_types": {"keep_in_fp32_modules": "lm_head"}}\n'},
        "ds.json:1 error",
        fixed={"ds.json": '{"train_batch_size": 8, "data_types": {"keep_in_fp32_modules": ["lm_head"]}}\n'},
        deepspeed_version="0.19.8",
    ),
    bad(
        "a value that the release in use still takes",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 1, "reduce_bucket_size": 0}}\n'},
        "ds.json:1 info",
        deepspeed_version="0.19.5",
    ),
    bad(
        "bfloat16 as old releases spell it",
        {"ds.json": '{"train_batch_size": 8, "communication_data_type": "bfp16"}\n'},
        "ds.json:1 info",
        deepspeed_version="0.12.6",
    ),
    good(
        "what pydantic converts",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8,\n'
            '  "allgather_bucket_size": "500000000", "overlap_comm": "false", "reduce_scatter": 1}}\n'
        },
    ),
    good(
        "values that transformers fills in",
        {
            "ds.json": '{"train_batch_size": "auto", "gradient_clipping": "auto", "fp16": {"enabled": "auto"},\n'
            '  "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}\n'
        },
    ),
    good(
        "1 and 0 for true and false",
        {
            "ds.json": '{"train_batch_size": 8, "zero_allow_untested_optimizer": 1, "dump_state": 0,\n'
            '  "checkpoint": {"parallel_write": {"pipeline_stage": 1}}, "flops_profiler": {"detailed": 1}}\n'
        },
    ),
    bad(
        "compared before it is converted",
        {"ds.json": '{"train_batch_size": 8, "tensor_parallel": {"autotp_size": "2"}}\n'},
        "ds.json:1 error",
        fixed={"ds.json": '{"train_batch_size": 8, "tensor_parallel": {"autotp_size": 2}}\n'},
        deepspeed_version="0.19.8",
    ),
    bad(
        "a fraction that the Trainer keeps",
        {"ds.json": '{"train_batch_size": 8, "wall_clock_breakdown": 1.0}\n'},
        "ds.json:1 error",
        fixed={"ds.json": '{"train_batch_size": 8, "wall_clock_breakdown": true}\n'},
        consumer="hf",
    ),
    good(
        "DeepSpeed's own reader makes a whole number of it",
        {"ds.json": '{"train_batch_size": 8, "flops_profiler": {"enabled": 1.0}}\n'},
        consumer="deepspeed",
    ),
    good(
        "converted in releases that do not compare",
        {"ds.json": '{"train_batch_size": 8, "tensor_parallel": {"autotp_size": 2}}\n'},
        deepspeed_version="0.17.6",
    ),
    good(
        "nulls that DeepSpeed allows", {"ds.json": '{"train_batch_size": 8, "bf16": null, "steps_per_print": null}\n'}
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Values that break the schema."""
    if not isinstance(doc.data, dict) and doc.has("") and not doc.problems:
        message = f"a DeepSpeed config is an object, but this is `{_shown(doc.data)}`: DeepSpeed stops when it reads it"
        yield META.finding(doc.value(""), message, hint="Write an object in braces", pointer="")
    filled = context.consumer.get_or("") in ("hf", "accelerate")
    for found in judged(doc, context.deepspeed):
        if found.violation.kind == "section" and not is_open(found.violation):
            yield _section(doc, found)
        elif found.violation.kind == "missing":
            yield _missing(doc, found)
        elif found.violation.kind in ("type", "value") and not (
            is_open(found.violation) or is_as_good(found.violation)
        ):
            finding = _value(doc, found)
            # accelerate writes its own number of steps over the one of the file.
            if finding is not None and filled and finding.pointer == "/steps_per_print":
                finding = replace(finding, severity=Severity.WARNING)
            if finding is not None:
                yield finding
    if isinstance(doc.get("/zero_optimization"), bool):
        yield _legacy_zero(doc, filled)
    for accident in accidents(doc, context, filled):
        yield _accident(doc, accident)


def _missing(doc: DataDoc, found: Judged) -> Finding:
    pointer, names = found.violation.pointer, found.violation.names
    severity, who = found.standing()
    listed = " and ".join(f"`{name}`" for name in names)
    message = f"`{dotted_key(pointer)}` lacks {listed}: {who} with a `KeyError`"
    return META.finding(doc.key(pointer), message, hint=f"Add {listed}", severity=severity, pointer=pointer)


def _section(doc: DataDoc, found: Judged) -> Finding:
    pointer, value = found.violation.pointer, found.violation.value
    severity, who = found.standing()
    if pointer.startswith(tuple(f"/{name}/" for name in BUILT)) and not is_used(doc, pointer):
        severity, who = Severity.WARNING, "what builds the class from it stops"
    message = f"`{dotted_key(pointer)}` is `{_shown(value)}`, but DeepSpeed needs an object: {who} at start-up"
    hint, fix = _replacement(doc, pointer, section(pointer, value))
    if not hint:
        hint = "Delete the key" if value is None else "Write an object in braces"
    return META.finding(doc.value(pointer), message, hint=hint, fix=fix, severity=severity, pointer=pointer)


def _replacement(doc: DataDoc, pointer: str, right: tuple[str, Safety] | None) -> tuple[str, Fix | None]:
    if right is None:
        return "", None
    text, safety = right
    bare = isinstance(doc.get(pointer), str) and not text.startswith(('"', "{", "["))
    hint = f"Write `{text}`" + (" without quotes" if bare else "")
    edits = replace_value(doc, pointer, text)
    return hint, Fix(hint, edits, safety) if edits else None


def _value(doc: DataDoc, found: Judged) -> Finding | None:
    violation, pointer, value = found.violation, found.violation.pointer, found.violation.value
    if pointer in BATCH_PLACES and isinstance(value, (int, float)):
        return _odd_batch(doc, pointer, value)
    stops = violation.strict or violation.raises or stops_parser(pointer, value)
    severity, who = found.standing() if stops else (Severity.WARNING, "")
    if not who and found.reach == "later":
        return None  # newer releases describe the value more narrowly; nobody stops
    plain = unquoted(value, violation.expected)
    # The string "true" happens to do what it says.
    misread = plain == "false" or (plain and plain != "true" and is_used(doc, pointer))
    misread = misread or is_computed_with(doc, violation)
    if not who and (misread or is_divisor(violation) or is_compared(violation) or is_lowered(violation)):
        severity = Severity.ERROR
    message = (
        f"`{dotted_key(pointer)}` is `{_shown(value)}`, but must be {violation.expected}: "
        f"{consequence(violation, plain, who)}"
    )
    right = (plain, Safety.SAFE) if plain else listed(pointer, value) or choice(pointer, value)
    hint, fix = _replacement(doc, pointer, right)
    hint = hint or f"Write {violation.expected}"
    shows = "parse" if violation.strict or violation.raises or pointer in BATCH_PLACES else "later"
    return META.finding(
        doc.value(pointer), message, hint=hint, fix=fix, severity=severity, pointer=pointer, facts={"shows": shows}
    )


def _odd_batch(doc: DataDoc, pointer: str, value: float) -> Finding | None:
    is_whole = float(value).is_integer()
    # A part of a sample in the total fits no derived micro batch: `batch-inconsistent` reports it.
    if value <= 0 or (pointer == f"/{TRAIN}" and not is_whole and doc.get(f"/{MICRO}") is None):
        return None
    effect = "no data loader can serve this batch size"
    fix = None
    if is_whole:
        effect = f"it counts as {int(value)}"
        edits = replace_value(doc, pointer, str(int(value)))
        fix = Fix(f"Write `{int(value)}`", edits) if edits else None
    message = f"`{pointer[1:]}` is `{_shown(value)}`, which DeepSpeed accepts and multiplies: {effect}"
    return META.finding(
        doc.value(pointer), message, hint="Write a whole number", fix=fix, severity=Severity.WARNING,
        pointer=pointer, facts={"shows": "later"},
    )  # fmt: skip


def _accident(doc: DataDoc, found: Accident) -> Finding:
    pointer = found.pointer
    right = (found.right, Safety.SAFE) if found.right else None
    hint, fix = _replacement(doc, pointer, right)
    message = f"`{dotted_key(pointer)}` is `{_shown(doc.get(pointer))}`: {found.why}"
    return META.finding(
        doc.value(pointer), message, hint=hint or found.hint, fix=fix, severity=found.severity,
        pointer=pointer, facts={"shows": "engine"},
    )  # fmt: skip


def _legacy_zero(doc: DataDoc, filled: bool) -> Finding:
    pointer = "/zero_optimization"
    value = doc.get(pointer)
    text = json.dumps({"stage": int(value)})
    message = (
        f"`zero_optimization` is `{_shown(value)}`, the deprecated form for stage {int(value)}, "
        "which accelerate and transformers cannot read"
    )
    edits = replace_value(doc, pointer, text) if not doc.has("/allgather_size") else ()
    fix = Fix(f"Write `{text}`", edits) if edits else None
    return META.finding(
        doc.value(pointer), message, hint=f"Write `{text}`", fix=fix,
        severity=Severity.ERROR if filled else Severity.WARNING,
        pointer=pointer,
        facts={"shows": "trainer"},
    )  # fmt: skip


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."
