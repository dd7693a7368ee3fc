"""The old section `bfloat16` beside `bf16`.

**What.** `bf16` was called `bfloat16` once, and DeepSpeed still reads the old name, but only where `bf16` is missing or
null. This rule reports a `bfloat16` section that is next to a `bf16` section.

**Why it hurts.** Nobody reads the old section: a run whose `bfloat16` says `"enabled": true` and whose `bf16` says
false trains in fp32 silently.

**Fix.** Keep `bf16` alone. `--fix` deletes the old section when both say the same.

**When it stays quiet.** One of the two alone, and `"bf16": null`.

**Evidence.** `get_bfloat16_config` in `deepspeed/runtime/config.py`; run with DeepSpeed 0.19.8: with
`bf16.enabled` false and `bfloat16.enabled` true the weights of the engine are `torch.float32`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import delete_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL141",
    name="bfloat16-beside-bf16",
    kind="config",
    severity=Severity.WARNING,
    summary="A `bfloat16` section that nobody reads, since `bf16` is next to it",
    fix="safe",
    needs=("/bfloat16",),
)

_SAME = """\
{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "bfloat16": {"enabled": true}
}
"""

EXAMPLES = (
    bad(
        "the same twice",
        {"ds.json": _SAME},
        "ds.json:4",
        fixed={"ds.json": _SAME.replace('true},\n  "bfloat16": {"enabled": true}', "true}")},
    ),
    bad(
        "the old section asks for what the new one switches off",
        {"ds.json": _SAME.replace('"bf16": {"enabled": true}', '"bf16": {"enabled": false}')},
        "ds.json:4",
    ),
    good("the old name alone", {"ds.json": _SAME.replace('  "bf16": {"enabled": true},\n', "")}),
    good(
        "null leaves the word to the old name", {"ds.json": _SAME.replace('"bf16": {"enabled": true}', '"bf16": null')}
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both sections."""
    view = view_of(doc, context)
    old, new = view.fact("/bfloat16"), view.fact("/bf16")
    if not (old.is_known and new.is_known):
        return
    same = old.get() == new.get()
    wanted, got = view.flag("/bfloat16/enabled"), view.flag("/bf16/enabled")
    effect = "DeepSpeed reads the new name only"
    if wanted.get_or(False) and got.get_or(True) is False:
        effect += ", and the run silently trains without bf16"
    edits = delete_member(doc, "/bfloat16") if same else ()
    yield META.finding(
        doc.key("/bfloat16"),
        f"`bfloat16` is next to `bf16`: {effect}",
        hint="Delete `bfloat16`" if same else "Move what you mean into `bf16` and delete `bfloat16`",
        related=(doc.key("/bf16", "the section that DeepSpeed reads"),),
        fix=Fix("Delete `bfloat16`", edits) if edits else None,
        pointer="/bfloat16",
    )
