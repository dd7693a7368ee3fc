"""An unknown key in a section that DeepSpeed validates.

**What.** `zero_optimization`, `fp16`, `bf16`, `compile`, `tensor_parallel`, the monitors and a few other sections are
pydantic models with `extra="forbid"`. This rule reports keys that the model does not have, one setting written under
two names, and keys that are newer than the DeepSpeed release the project asks for.

**Why it hurts.** Every rank stops at start-up with `ValidationError ... Extra inputs are not permitted`, after the
queue, the container and the imports. `bf16` became such a section in 0.17.1: configs with `loss_scale` in it broke.

**Fix.** Correct or delete the key, or move it to the section that knows it. Keys of `fp16` that were copied into
`bf16` have no effect in any release: `--fix` deletes them.

**When it stays quiet.** Sections that DeepSpeed reads key by key. A release that accepted the key: then the finding
is a warning or an information that an upgrade breaks. A value of `"auto"` is a warning only, because DeepSpeed
drops such keys before it validates.

**Evidence.** `DeepSpeedConfigModel` in `deepspeed/runtime/config_utils.py`;
https://github.com/deepspeedai/DeepSpeed/issues/2721, https://github.com/FlagOpen/FlagEmbedding/issues/1487
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.history import is_newer_than, known_since, refusal, strict_since
from dslint.model.deepspeed.keys import COMPILE_LEGACY, FP16_ONLY, home_of, instead_of, keys_of, misspelled, renamed
from dslint.model.deepspeed.schema import Violation, is_dropped, is_strict, violations
from dslint.model.edits import delete_member, rename_key
from dslint.model.versions.resolve import covers
from dslint.parse.data import DataDoc, join_pointer, split_pointer
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL102",
    name="unknown-section-key",
    kind="config",
    severity=Severity.ERROR,
    summary="A key that DeepSpeed's models refuse: every rank stops with a ValidationError",
    fix="safe",
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/2721",
        "https://github.com/FlagOpen/FlagEmbedding/issues/1487",
    ),
    depends_on_run=True,
)

_BF16 = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "bf16": {
    "enabled": true,
    "loss_scale": 0
  },
  "zero_optimization": {"stage": 2}
}
"""

EXAMPLES = (
    bad(
        "`loss_scale` belongs to fp16 only",
        {"ds.json": _BF16},
        "ds.json:5 error",
        fixed={"ds.json": _BF16.replace('true,\n    "loss_scale": 0', "true")},
    ),
    bad(
        "asynchronous I/O is a section of its own",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "aio": {"block_size": 1048576}}}\n'},
        "ds.json:1 error",
    ),
    bad(
        "one setting under both of its names",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2,\n'
            '  "stage3_max_live_parameters": 1000,\n  "max_live_parameters": 1000}}\n'
        },
        "ds.json:2 error",
    ),
    bad(
        "a key that is newer than the release in use",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "enable_sanity_checks": true}}\n'},
        "ds.json:1 error",
        deepspeed_version="0.12.6",
    ),
    good(
        "the name without `stage3_` is legal",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "max_live_parameters": 1000,\n'
            '  "stage3_gather_16bit_weights_on_model_save": true}}\n'
        },
    ),
    good(
        "sections that DeepSpeed reads key by key are open",
        {"ds.json": '{"train_batch_size": 8, "flops_profiler": {"enabled": false, "owner": "me"}}\n'},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Unknown, doubled and too new keys of validated sections."""
    for violation in violations(doc):
        if violation.kind == "both":
            yield _both(doc, violation)
        elif violation.kind == "unknown" and violation.strict:
            yield _unknown(doc, violation, context)
    yield from _too_new(doc, context)


def _both(doc: DataDoc, violation: Violation) -> Finding:
    section = violation.pointer.rpartition("/")[0]
    first, second = violation.names
    message = f"`{first}` and `{second}` are two names of one setting, and DeepSpeed refuses a config that has both"
    other = doc.key(join_pointer(section, second), "the other name")
    return META.finding(
        doc.key(violation.pointer), message, hint="Keep one of the two", related=(other,), pointer=violation.pointer
    )


def _unknown(doc: DataDoc, violation: Violation, context: Context) -> Finding:
    pointer = violation.pointer
    section, _, _ = pointer.rpartition("/")
    name, key = section[1:].replace("/", "."), split_pointer(pointer)[-1]
    since = strict_since(pointer)
    severity, who = refusal(context.deepspeed, since, "does not look at it")
    message = f"`{name}` has no key `{key}`: {who} with `Extra inputs are not permitted`"
    if violation.value == "auto":
        severity = Severity.WARNING
        message = f'`{name}` has no key `{key}`: DeepSpeed drops it because its value is `"auto"`'
    elif severity is Severity.WARNING and name == "compile" and key in COMPILE_LEGACY:
        severity = Severity.INFO
    hint, fix = _cure(doc, pointer, section, key)
    related = version_origin(context.deepspeed) if since else ()
    return META.finding(
        doc.key(pointer), message, hint=hint, fix=fix, severity=severity, related=related, pointer=pointer
    )


def _cure(doc: DataDoc, pointer: str, section: str, key: str) -> tuple[str, Fix | None]:
    name = section[1:].replace("/", ".")
    if section in ("/bf16", "/bfloat16") and key in FP16_ONLY:
        edits = delete_member(doc, pointer)
        return f"Delete `{key}`: bf16 needs no loss scaling", (Fix(f"Delete `{key}`", edits) if edits else None)
    if section == "/compile" and key in COMPILE_LEGACY:
        return (
            "Delete the key and call `engine.compile()` in the script, or pass `--torch_compile` to transformers",
            None,
        )
    if instead := instead_of(key, section):
        return instead, None
    right = misspelled(key, section) or renamed(key, section)
    if right and doc.has(join_pointer(section, right)):
        return f"Delete `{key}`: `{right}` is set as well", None
    if right:
        edits = rename_key(doc, pointer, right)
        return f"Write `{right}`", Fix(f"Rename the key to `{right}`", edits, Safety.UNSAFE) if edits else None
    home = home_of(key, not_in=section)
    if home is not None:
        return f"Move `{key}` " + (f"into `{home[1:].replace('/', '.')}`" if home else "to the top level"), None
    if listed := keys_of(section):
        return f"Delete `{key}`: the keys of `{name}` are {listed}", None
    return f"Delete `{key}`, or look up the keys of `{name}` in DeepSpeed's documentation", None


def _too_new(doc: DataDoc, context: Context) -> Iterator[Finding]:
    version = context.deepspeed
    if not version.is_known:
        return
    for pointer in doc.keys:
        section, _, key = pointer.rpartition("/")
        if not is_newer_than(pointer, version) or not is_strict(section) or is_dropped(doc, pointer):
            continue
        strict = strict_since(pointer)
        # One finding for a section and all that is in it; a section that is not validated yet drops what it lacks.
        if is_newer_than(section, version) or (strict and covers(version, f">={strict}") != "yes"):
            continue
        since = known_since(pointer)
        message = (
            f"`{key}` is newer than {version_named(version)}, which stops with `Extra inputs are not permitted`: "
            f"`{section[1:].replace('/', '.')}` has it since {since}"
        )
        hint = f"Delete `{key}`, or upgrade to `deepspeed>={since}`"
        yield META.finding(
            doc.key(pointer), message, hint=hint, related=version_origin(version), pointer=pointer,
            facts={"since": since},
        )  # fmt: skip
