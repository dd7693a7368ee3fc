"""A key at the top level of a DeepSpeed config that DeepSpeed does not read.

**What.** The parser of DeepSpeed asks the top level of the file for the keys it knows and never looks at the rest.
Where the project states its DeepSpeed release, keys that are newer than it count as well.

**Why it hurts.** The setting is silently ignored: with `zero_optimisation` the run trains at ZeRO stage 0 and
runs out of memory, with `gradient_clipp1ng` nothing is clipped. No log line mentions the key.

**Fix.** Write the key that is meant; `--unsafe-fixes` renames a misspelled one. Delete a key that nothing reads.

**When it stays quiet.** Keys that begin with `_`, `$` or `//` and keys that are called a comment; `msamp` and
`inference`, which accelerate and transformers read. A key that is only a few slips away from a known one is an error,
any other unknown key a warning, because a training script may read it itself.

**Evidence.** `DeepSpeedConfig._initialize_params` in `deepspeed/runtime/config.py`;
https://github.com/deepspeedai/DeepSpeed/issues/653, https://github.com/deepspeedai/DeepSpeed/issues/774,
https://github.com/deepspeedai/DeepSpeed/issues/1809
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.history import known_since, known_until, release_in_use
from dslint.model.deepspeed.judged import Judged, judged
from dslint.model.deepspeed.keys import home_of, instead_of, is_remark, misspelled, renamed
from dslint.model.deepspeed.schema import numbers, schema_at
from dslint.model.edits import rename_key
from dslint.parse.data import DataDoc, split_pointer
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL101",
    name="unknown-top-level-key",
    kind="config",
    severity=Severity.WARNING,
    summary="A key of a DeepSpeed config that DeepSpeed drops silently",
    fix="unsafe",
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/774",
        "https://github.com/deepspeedai/DeepSpeed/issues/1809",
    ),
    depends_on_run=True,
)

_TYPO = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,
  "gradient_clipp1ng": 1.0,
  "zero_optimization": {
    "stage": 2
  }
}
"""

EXAMPLES = (
    bad(
        "a misspelled key is ignored",
        {"ds_config.json": _TYPO},
        "ds_config.json:4 error",
        fixed={"ds_config.json": _TYPO.replace("clipp1ng", "clipping")},
    ),
    bad(
        "a ZeRO setting outside `zero_optimization`",
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "overlap_comm": false}\n'},
        "ds.json:1 warning",
    ),
    bad(
        "a key that is newer than the release in use",
        {"ds.json": '{"train_batch_size": 8, "torch_autocast": {"enabled": true}}\n'},
        "ds.json:1 warning",
        deepspeed_version="0.16.9",
    ),
    good(
        "the release in use has the key",
        {"ds.json": '{"train_batch_size": 8, "torch_autocast": {"enabled": true}}\n'},
        deepspeed_version="0.17.2",
    ),
    good(
        "comments as keys",
        {
            "ds.json": '{"_comment": "for 8 GPUs", "$schema": "ds.schema.json", "train_micro_batch_size_per_gpu": 1,'
            ' "zero_optimization": {"stage": 1}}\n'
        },
    ),
    good(
        "every key is one that DeepSpeed reads",
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, "bf16": {"enabled": true}}\n'},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Keys of the root object that DeepSpeed, or the release in use, does not know."""
    for found in judged(doc, context.deepspeed):
        pointer = found.violation.pointer
        parts = split_pointer(pointer)
        if found.violation.kind != "unknown" or len(parts) != 1 or is_remark(parts[0]):
            continue
        until = known_until(pointer)
        if schema_at(pointer) is not None or until is not None:
            if found.reach == "all":
                yield _other_release(doc, pointer, parts[0], context.deepspeed)
            elif found.reach == "later":
                yield _gone(doc, found, parts[0])
        else:
            yield _finding(doc, pointer, parts[0])


def _gone(doc: DataDoc, found: Judged, key: str) -> Finding:
    pointer, version = found.violation.pointer, found.version
    message = (
        f"`{key}` is read by {version_named(version)}, but DeepSpeed {found.since or found.release} and later silently "
        "ignore it: an upgrade changes the run"
    )
    return META.finding(
        doc.key(pointer), message, hint=f"Delete `{key}` before you upgrade", severity=Severity.INFO,
        related=version_origin(version), pointer=pointer,
    )  # fmt: skip


def _other_release(doc: DataDoc, pointer: str, key: str, version: VersionFact) -> Finding:
    """The key is one that other releases read."""
    since, until = known_since(pointer), known_until(pointer)
    if until and numbers(release_in_use(version)) >= numbers(until):
        message = f"`{key}` is silently ignored by {version_named(version)}: DeepSpeed read it until {until}"
        return META.finding(
            doc.key(pointer), message, hint=f"Delete `{key}`", related=version_origin(version), pointer=pointer
        )
    message = (
        f"`{key}` is newer than {version_named(version)}, which silently ignores it: DeepSpeed reads it since {since}"
    )
    hint = f"Delete `{key}`, or upgrade to `deepspeed>={since}`"
    return META.finding(
        doc.key(pointer), message, hint=hint, related=version_origin(version), pointer=pointer, facts={"since": since}
    )


def _finding(doc: DataDoc, pointer: str, key: str) -> Finding:
    message = f"`{key}` is not a top-level key of DeepSpeed: the setting is silently ignored"
    near = misspelled(key)
    hint, fix = _cure(doc, pointer, key, near or renamed(key))
    severity = Severity.ERROR if near else Severity.WARNING
    return META.finding(doc.key(pointer), message, hint=hint, fix=fix, severity=severity, pointer=pointer)


def _cure(doc: DataDoc, pointer: str, key: str, right: str | None) -> tuple[str, Fix | None]:
    if instead := instead_of(key):
        return instead, None
    home = home_of(key)
    if home:
        return f"Move `{key}` into `{home[1:].replace('/', '.')}`, where DeepSpeed reads it", None
    if right is None:
        return "Delete the key, or start its name with `_` if it is a comment", None
    if doc.has(f"/{right}"):
        return f"Delete `{key}`: `{right}` is set as well", None
    edits = rename_key(doc, pointer, right)
    return f"Write `{right}`", Fix(f"Rename the key to `{right}`", edits, Safety.UNSAFE) if edits else None
