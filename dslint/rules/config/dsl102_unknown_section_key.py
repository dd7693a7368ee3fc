"""An unknown key in a section of a DeepSpeed config: refused where the section is validated, else dropped.

**What.** `zero_optimization`, `fp16`, `bf16`, `compile`, `tensor_parallel`, the monitors and a few other sections are
pydantic models with `extra="forbid"`. This rule reports keys that the model does not have, one setting written under
two names, and keys that are newer than the DeepSpeed release the project asks for. Other sections (`aio`,
`activation_checkpointing`, `checkpoint`, `data_types`, ...) are read key by key: a key that nothing asks for there is a
warning.

**Why it hurts.** Every rank stops at start-up with `ValidationError ... Extra inputs are not permitted`, after the
queue, the container and the imports. `bf16` became such a section in 0.17.1: configs with `loss_scale` in it broke.
A dropped key is silent: `aio.thread_count`, renamed in 0.16.4, leaves the reads with one thread.

**Fix.** Correct or delete the key, or move it to the section that knows it. Keys of `fp16` that were copied into
`bf16` have no effect in any release: they are one finding, and `--fix` deletes them all.

**When it stays quiet.** Keys of the parameters of optimizers and schedules, also beside `type`, which other rules
judge; keys that begin with `_`. A release in use that accepts the key: then the finding is an information that an
upgrade breaks; a range in which some release accepts it: a warning. A value of `"auto"` is a warning only, because
DeepSpeed drops such keys before it validates. Of releases before the oldest one that dslint knows: an information.

**Evidence.** `DeepSpeedConfigModel` in `deepspeed/runtime/config_utils.py`;
https://github.com/deepspeedai/DeepSpeed/issues/2721, https://github.com/FlagOpen/FlagEmbedding/issues/1487
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.history import breaks_since, known_since, known_until, release_in_use, strict_since
from dslint.model.deepspeed.hyper import SECTIONS, flat
from dslint.model.deepspeed.judged import Judged, judged
from dslint.model.deepspeed.keys import (
    COMPILE_LEGACY,
    FP16_ONLY,
    home_of,
    instead_of,
    is_remark,
    keys_of,
    misspelled,
    renamed,
)
from dslint.model.deepspeed.schema import history, schema_at
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import delete_members, rename_key
from dslint.model.versions.resolve import covers
from dslint.parse.data import DataDoc, dotted_key, join_pointer, split_pointer
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL102",
    name="unknown-section-key",
    kind="config",
    severity=Severity.ERROR,
    summary="A key that a section does not have: a ValidationError on every rank, or silently ignored",
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

_COPIED = _BF16.replace(
    '"loss_scale": 0',
    '"loss_scale": 0,\n    "loss_scale_window": 1000,\n    "initial_scale_power": 16,\n    "min_loss_scale": 1',
)

EXAMPLES = (
    bad(
        "`loss_scale` belongs to fp16 only",
        {"ds.json": _BF16},
        "ds.json:5 error",
        fixed={"ds.json": _BF16.replace('true,\n    "loss_scale": 0', "true")},
    ),
    bad(
        "the fp16 section, copied: one finding",
        {"ds.json": _COPIED},
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
        "a release of which nobody knows what it makes of the key",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "cpu_offload_params": true}}\n',
            "requirements.txt": "deepspeed==0.6.5\n",
        },
        "ds.json:1 info",
    ),
    bad(
        "a key that is newer than the release in use",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "enable_sanity_checks": true}}\n'},
        "ds.json:1 error",
        deepspeed_version="0.12.6",
    ),
    bad(
        "an old name in a section that DeepSpeed reads key by key",
        {"ds.json": '{"train_batch_size": 8, "aio": {"block_size": 1048576, "thread_count": 4}}\n'},
        "ds.json:1 warning",
    ),
    bad(
        "the misspelling of DeepSpeed's own documentation",
        {"ds.json": '{"train_batch_size": 8, "activation_checkpointing": {"partitioned_activations": true}}\n'},
        "ds.json:1 warning",
    ),
    good(
        "the name without `stage3_` is legal",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "max_live_parameters": 1000,\n'
            '  "stage3_gather_16bit_weights_on_model_save": true}}\n'
        },
    ),
    good(
        "a remark in a section that DeepSpeed reads key by key",
        {"ds.json": '{"train_batch_size": 8, "flops_profiler": {"enabled": false, "_owner": "me"}}\n'},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Unknown, doubled and too new keys of validated sections."""
    for found, copied in _by_section(doc, judged(doc, context.deepspeed)):
        violation = found.violation
        if violation.kind == "both":
            yield _both(doc, found)
        elif violation.kind == "unknown" and violation.pointer.count("/") > 1:
            if found.reach == "some" and schema_at(violation.pointer) is not None:
                continue  # some release of the range has the key
            if not violation.strict:
                if is_remark(split_pointer(violation.pointer)[-1]) or _is_flat(doc, context, violation.pointer):
                    continue
                finding = _dropped(doc, found, context, copied)
            elif schema_at(violation.pointer) is not None and found.reach != "later":
                finding = _too_new(doc, found)
            else:
                finding = _unknown(doc, found, context, copied)
            yield finding


def _is_flat(doc: DataDoc, context: Context, pointer: str) -> bool:
    """A hyper-parameter beside ``type``: DSL121 says so, and moves it."""
    section, key = split_pointer(pointer)[0], split_pointer(pointer)[-1]
    return section in SECTIONS and pointer.count("/") == 2 and key in flat(view_of(doc, context), section)


def _by_section(doc: DataDoc, all_found: Iterable[Judged]) -> Iterator[tuple[Judged, tuple[str, ...]]]:
    """Every violation once; keys that came with a copied section are one: the first, with the pointers of all."""
    groups: dict[tuple[object, ...], list[Judged]] = {}
    for found in all_found:
        violation = found.violation
        section, _, key = violation.pointer.rpartition("/")
        is_copied = violation.kind == "unknown" and _is_copied(section, key)
        same = (section, found.reach, found.since, violation.strict, violation.value == "auto")
        groups.setdefault(same if is_copied else (violation.pointer, violation.kind), []).append(found)
    for group in groups.values():
        group.sort(key=lambda found: doc.keys.get(found.violation.pointer, doc.values[found.violation.pointer]))
        yield group[0], tuple(found.violation.pointer for found in group)


def _both(doc: DataDoc, found: Judged) -> Finding:
    violation = found.violation
    section = violation.pointer.rpartition("/")[0]
    first, second = violation.names
    message = f"`{first}` and `{second}` name the same setting, and DeepSpeed refuses a config with both"
    other = doc.key(join_pointer(section, second), "the other name")
    severity, who = found.standing()
    if found.reach != "all":
        message += f" ({who})"
    return META.finding(
        doc.key(violation.pointer), message, hint="Keep one of the two", related=(other,), pointer=violation.pointer,
        severity=severity,
    )  # fmt: skip


def _unknown(doc: DataDoc, found: Judged, context: Context, copied: tuple[str, ...]) -> Finding:
    violation, pointer = found.violation, found.violation.pointer
    severity, who = found.standing(_meanwhile(found))
    message = f"{_no_key(copied)}: {who} with `Extra inputs are not permitted`"
    if violation.value == "auto":
        severity = Severity.WARNING
        them, is_auto = ("it", 'its value is `"auto"`') if len(copied) == 1 else ("them", 'each is `"auto"`')
        message = f"{_no_key(copied)}: DeepSpeed ignores {them} because {is_auto}"
    first = history()["first"]
    if covers(context.deepspeed, f"<{first}") == "yes":
        # Up to 0.6 the section was read key by key, with other names.
        severity = Severity.INFO
        message = (
            f"{_no_key(copied)}: DeepSpeed {first} stops at start-up, and {version_named(context.deepspeed)} may read"
            f" or ignore {'it' if len(copied) == 1 else 'them'}"
        )
    hint, fix = _cure(doc, copied)
    related = version_origin(context.deepspeed) if found.since or found.reach == "later" else ()
    related += _others(doc, copied)
    return META.finding(
        doc.key(pointer), message, hint=hint, fix=fix, severity=severity, related=related, pointer=pointer
    )


def _no_key(pointers: tuple[str, ...]) -> str:
    """What the section of the pointers does not have."""
    *keys, last = (f"`{split_pointer(pointer)[-1]}`" for pointer in pointers)
    name = dotted_key(pointers[0].rpartition("/")[0])
    return f"`{name}` has no keys {', '.join(keys)} and {last}" if keys else f"`{name}` has no key {last}"


def _others(doc: DataDoc, pointers: tuple[str, ...]) -> tuple[Location, ...]:
    return tuple(doc.key(pointer, "the same") for pointer in pointers[1:])


def _is_copied(section: str, key: str) -> bool:
    return section in ("/bf16", "/bfloat16") and key in FP16_ONLY


def _cure(doc: DataDoc, pointers: tuple[str, ...]) -> tuple[str, Fix | None]:
    pointer = pointers[0]
    section, key = pointer.rpartition("/")[0], split_pointer(pointer)[-1]
    name = dotted_key(section)
    if _is_copied(section, key):
        what = f"`{key}`" if len(pointers) == 1 else "all of them"
        edits = delete_members(doc, pointers)
        title = f"Delete {', '.join(f'`{split_pointer(p)[-1]}`' for p in pointers)}"
        return f"Delete {what}: bf16 needs no loss scaling", (Fix(title, edits) if edits else None)
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


def _meanwhile(found: Judged) -> str:
    """What the releases in use make of a key that newer ones refuse."""
    reads = schema_at(found.violation.pointer, release_in_use(found.version)) is not None
    return "reads it" if reads else "does not look at it"


def _too_new(doc: DataDoc, found: Judged) -> Finding:
    """A key that newer releases have: one finding for a section and all that is in it."""
    pointer = found.violation.pointer
    section, _, key = pointer.rpartition("/")
    since = known_since(pointer)
    message = (
        f"`{dotted_key(section)}.{key}` exists since DeepSpeed {since}: {version_named(found.version)} stops with"
        " `Extra inputs are not permitted`"
    )
    severity = Severity.WARNING if found.violation.value == "auto" else Severity.ERROR
    if severity is Severity.WARNING:
        message = (
            f"`{dotted_key(section)}.{key}` exists since DeepSpeed {since}: {version_named(found.version)} ignores it"
            ' because its value is `"auto"`'
        )
    return META.finding(
        doc.key(pointer), message, hint=f"Delete `{key}`, or upgrade to `deepspeed>={since}`", severity=severity,
        related=version_origin(found.version), pointer=pointer, facts={"since": since or ""},
    )  # fmt: skip


def _dropped(doc: DataDoc, found: Judged, context: Context, copied: tuple[str, ...]) -> Finding:
    """A key of a section that DeepSpeed reads key by key."""
    pointer, version = found.violation.pointer, context.deepspeed
    section, key = pointer.rpartition("/")[0], split_pointer(pointer)[-1]
    name = dotted_key(section)
    since, until = known_since(pointer), known_until(pointer)
    severity = Severity.WARNING
    related: tuple[Location, ...] = ()
    hint, fix = _cure(doc, copied)
    message = f"{_no_key(copied)}: {version_named(version)} silently ignores {'it' if len(copied) == 1 else 'them'}"
    refusing = strict_since(pointer)
    if found.reach == "later":
        severity, related = Severity.INFO, version_origin(version)
        message = (
            f"`{name}.{key}` is read by {version_named(version)}, but DeepSpeed {until or found.since} and later "
            "silently ignore it: an upgrade changes the run"
        )
    elif until:
        message = f"`{name}` has no key `{key}` since DeepSpeed {until}, which silently ignores it"
    elif schema_at(pointer) is not None and since:
        message = f"`{name}.{key}` is newer than {version_named(version)}, which silently ignores it"
        hint, fix, related = f"Delete `{key}`, or upgrade to `deepspeed>={since}`", None, version_origin(version)
    elif refusing:
        related = version_origin(version)
        message += f", and {breaks_since(refusing)}"
        # bf16 has no use for them, so nothing is lost before the upgrade.
        severity = Severity.INFO if _is_copied(section, key) else severity
    return META.finding(
        doc.key(pointer), message, hint=hint, fix=fix, severity=severity,
        related=related + _others(doc, copied), pointer=pointer, facts={"shows": "effect"},
    )  # fmt: skip
