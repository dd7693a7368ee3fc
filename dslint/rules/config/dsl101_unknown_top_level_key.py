"""A key at the top level of a DeepSpeed config that DeepSpeed does not read.

**What.** The parser of DeepSpeed asks the top level of the file for the keys it knows and never looks at the rest.

**Why it hurts.** The setting is dropped without a word: with `zero_optimisation` the run trains at ZeRO stage 0 and
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
from dslint.model.context import Context
from dslint.model.deepspeed.keys import home_of, meant, misspelled
from dslint.model.deepspeed.schema import violations
from dslint.model.edits import rename_key
from dslint.parse.data import DataDoc, split_pointer
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL101",
    name="unknown-top-level-key",
    kind="config",
    severity=Severity.WARNING,
    summary="A key of a DeepSpeed config that DeepSpeed drops without a word",
    fix="unsafe",
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/774",
        "https://github.com/deepspeedai/DeepSpeed/issues/1809",
    ),
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


def check(doc: DataDoc, _context: Context) -> Iterator[Finding]:
    """Unknown keys of the root object."""
    for violation in violations(doc):
        parts = split_pointer(violation.pointer)
        if violation.kind == "unknown" and len(parts) == 1 and not _is_remark(parts[0]):
            yield _finding(doc, violation.pointer, parts[0])


def _is_remark(key: str) -> bool:
    return key.startswith(("_", "$", "//", "#")) or "comment" in key.casefold() or "note" in key.casefold()


def _finding(doc: DataDoc, pointer: str, key: str) -> Finding:
    message = f"`{key}` is no key that DeepSpeed reads, so the setting is dropped without a word"
    near = misspelled(key)
    if near:
        edits = rename_key(doc, pointer, near)
        fix = Fix(f"Rename the key to `{near}`", edits, Safety.UNSAFE) if edits else None
        hint = f"Write `{near}`" if edits else f"Delete `{key}`: `{near}` is set as well"
        return META.finding(doc.key(pointer), message, hint=hint, fix=fix, severity=Severity.ERROR, pointer=pointer)
    home, other = home_of(key), meant(key)
    if home:
        hint = f"Move `{key}` into `{home[1:]}`, where DeepSpeed reads it"
    elif other:
        hint = f"Use `{other}`, which is what DeepSpeed calls it"
    else:
        hint = "Delete the key, or begin its name with `_` when it is a remark"
    return META.finding(doc.key(pointer), message, hint=hint, pointer=pointer)
