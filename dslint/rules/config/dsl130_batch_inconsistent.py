"""Batch sizes that do not fit together or do not fit the number of processes.

**What.** DeepSpeed asserts that `train_batch_size` = `train_micro_batch_size_per_gpu` x
`gradient_accumulation_steps` x world size. A number that is left out is derived with whole-number division and the
product is tested after that.

**Why it hurts.** All processes start, load the model, and then stop in `_batch_assertion`, or with a
`ZeroDivisionError` before it where a number is zero.

**Fix.** Leave one of the three numbers out: `--fix` deletes `train_batch_size` where all three are given, and DeepSpeed
computes it; micro batch and accumulation steps stay. Under transformers or accelerate, which fill in only keys that
are in the file, `--fix` adds the missing three as `"auto"`. Otherwise choose a batch size that is a multiple of the
product.

**When it stays quiet.** `"auto"` and every number that is not known are never guessed: without a world size only what
no world size can mend is reported. Pipeline stages divide the world size in the code; a config with a `pipeline`
section is left to the launch command. The ranks of AutoTP count in full, because DeepSpeed reads the config before it
makes their groups. A config without any batch size is an error where the reader is known; else an information, because
a script, or the strategy of Lightning, may add it, and nothing where the name of the file or its folder says that it
is a template.

**Evidence.** `DeepSpeedConfig._set_batch_related_parameters` and `_batch_assertion` in `deepspeed/runtime/config.py`;
https://github.com/deepspeedai/DeepSpeed/issues/6914, https://github.com/OpenRLHF/OpenRLHF/issues/346
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.deepspeed.batch import MICRO, STEPS, TRAIN, BatchVerdict, data_parallel_world, judge, read_batch
from dslint.model.deepspeed.config import top_of
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import delete_member, insert_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL130",
    name="batch-inconsistent",
    kind="config",
    severity=Severity.ERROR,
    summary="Batch sizes whose product DeepSpeed's start-up assertion refuses",
    fix="safe",
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/6914",
        "https://github.com/OpenRLHF/OpenRLHF/issues/346",
    ),
    depends_on_run=True,
)

_THREE = """\
{
  "train_batch_size": 30,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 1
}
"""

_TRAINERS = ("hf", "accelerate")
_NO_SIZE = """\
{
  "zero_optimization": {"stage": 1}
}
"""

EXAMPLES = (
    bad(
        "30 samples on 8 processes of 4",
        {"ds.json": _THREE},
        "ds.json:2 error",
        fixed={"ds.json": _THREE.replace('  "train_batch_size": 30,\n', "")},
        world_size=8,
    ),
    bad("no world size can make 30 from 4", {"ds.json": _THREE}, "ds.json:2 error"),
    bad(
        "the derived number would not be whole",
        {"ds.json": '{\n  "train_batch_size": 8,\n  "train_micro_batch_size_per_gpu": 4\n}\n'},
        "ds.json:2 error",
        world_size=4,
    ),
    bad(
        "fewer samples than processes",
        {"ds.json": '{\n  "train_batch_size": 4,\n  "zero_optimization": {"stage": 1}\n}\n'},
        "ds.json:2 error",
        world_size=8,
    ),
    bad("zero steps", {"ds.json": '{\n  "train_batch_size": 4,\n  "gradient_accumulation_steps": 0\n}\n'}, "ds.json:3"),
    bad(
        "transformers fills in only what is in the file",
        {"ds.json": _NO_SIZE},
        "ds.json:1 error",
        fixed={
            "ds.json": _NO_SIZE.replace(
                "}\n}",
                '},\n  "train_batch_size": "auto",\n  "train_micro_batch_size_per_gpu": "auto",\n'
                '  "gradient_accumulation_steps": "auto"\n}',
            )
        },
        consumer="hf",
    ),
    bad(
        "half a sample more",
        {"ds.json": '{"train_batch_size": 8.5, "zero_optimization": {"stage": 1}}\n'},
        "ds.json:1 error",
    ),
    bad("no size at all", {"ds.json": '{"zero_optimization": {"stage": 1}}\n'}, "ds.json:1 info"),
    good("the numbers fit", {"ds.json": _THREE.replace("30", "32")}, world_size=8),
    good("some world size fits", {"ds.json": _THREE.replace("30", "32")}),
    good(
        "transformers fills the numbers in",
        {
            "ds.json": '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",\n'
            '  "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 0}}\n'
        },
        world_size=7,
    ),
    good(
        "two ranks share a sequence",
        {"ds.json": _THREE.replace("30,", '16,\n  "sequence_parallel_size": 2,')},
        world_size=8,
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The batch triangle of the config, with the world size that the context knows."""
    if not isinstance(doc.data, dict):
        return
    reads_size = view_of(doc, context).runs(">=0.17.0")
    verdict = judge(read_batch(doc), data_parallel_world(doc, context.world_size, reads_size=reads_size))
    if not verdict.is_wrong:
        return
    severity = Severity.ERROR
    if verdict.kind == "missing" and "template" in "/".join(doc.path.casefold().split("/")[-2:]):
        return
    # "auto" elsewhere in the file is no proof: a script may add the batch sizes.
    reader = context.consumer.get_or("unknown")
    if verdict.kind == "missing" and reader not in ("deepspeed", *_TRAINERS):
        severity = Severity.INFO if reader == "unknown" else Severity.WARNING
    hint, fix = _cure(doc, verdict, reader)
    yield META.finding(
        verdict.at or top_of(doc),
        verdict.message,
        hint=hint,
        related=verdict.related,
        fix=fix,
        severity=severity,
        pointer="" if verdict.kind == "missing" else f"/{verdict.name}",
    )


def _cure(doc: DataDoc, verdict: BatchVerdict, reader: str) -> tuple[str, Fix | None]:
    if verdict.kind == "missing" and reader in _TRAINERS:
        edits = _filled_in(doc)
        hint = f'Write `{TRAIN}`, `{MICRO}` and `{STEPS}` as `"auto"`: only keys that are in the file are filled in'
        return hint, Fix('Leave the batch sizes to the Trainer as `"auto"`', edits) if edits else None
    if verdict.kind == "missing":
        return f"Set `{MICRO}`", None
    if verdict.kind == "nonpositive":
        return "Set a positive number", None
    if any(doc.get(f"/{name}") is None for name in (TRAIN, MICRO, STEPS)):
        return f"Make `{TRAIN}` a multiple of this product", None
    edits = delete_member(doc, f"/{TRAIN}")
    fix = Fix(f"Delete `{TRAIN}`", edits) if edits else None
    return f"Delete `{TRAIN}` and let DeepSpeed compute it from the other two", fix


def _filled_in(doc: DataDoc) -> tuple[Edit, ...]:
    """The missing keys as ``"auto"``, each on a line of its own where the members of the file have theirs."""
    missing = [name for name in (TRAIN, MICRO, STEPS) if not doc.has(f"/{name}")]
    starts = [doc.members[p].start for _, p, _ in doc.children("") if p in doc.members]
    if missing[:2] != [TRAIN, MICRO] or not starts:
        return ()
    head = doc.source.text[: min(starts)]
    line = head[len(head.rstrip(" \t\r\n")) :]
    between = f",{line}" if "\n" in line else ", "
    text = between.join(['"auto"', *(f'"{name}": "auto"' for name in missing[1:])])
    return insert_member(doc, "", TRAIN, text)
