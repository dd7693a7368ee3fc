"""Hyper-parameters beside the type of an optimizer or schedule, where nothing reads them.

**What.** `optimizer` or `scheduler` holds `lr`, `betas`, `warmup_num_steps` and the like next to `type` instead of in
`params`.

**Why it hurts.** DeepSpeed reads `type` and `params` only. The values are silently ignored, and the class trains
with its defaults: a learning rate of 0.001, whatever the file says.

**Fix.** `--fix` moves them into `params`.

**When it stays quiet.** For words that the class does not take, and for those that are in `params` as well.

**Evidence.** `get_optimizer_params` and `get_scheduler_params` in `deepspeed/runtime/config.py`. The experiment trains
with the file and compares learning rates.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import SECTIONS, flat, worded
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import delete_member, insert_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL121",
    name="optimizer-flat-params",
    kind="config",
    severity=Severity.WARNING,
    summary="Hyper-parameters beside `type` instead of in `params` are silently ignored",
    fix="safe",
    references=("https://www.deepspeed.ai/docs/config-json/#optimizer-parameters",),
    depends_on_run=True,
    needs=("/optimizer/type", "/scheduler/type"),
)

EXAMPLES = (
    bad(
        "no `params`",
        {"ds.json": '{\n  "train_batch_size": 8,\n  "optimizer": {"type": "AdamW", "lr": 1e-4}\n}\n'},
        "ds.json:3 warning",
        fixed={"ds.json": '{\n  "train_batch_size": 8,\n  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}\n}\n'},
    ),
    bad(
        "some of them",
        {
            "ds.json": '{\n  "train_batch_size": 8,\n  "optimizer": {\n    "type": "AdamW",\n    "weight_decay": 0.1,\n'
            '    "params": {"lr": 1e-4}\n  }\n}\n'
        },
        "ds.json:5 warning",
        fixed={
            "ds.json": '{\n  "train_batch_size": 8,\n  "optimizer": {\n    "type": "AdamW",\n'
            '    "params": {"lr": 1e-4, "weight_decay": 0.1}\n  }\n}\n'
        },
    ),
    good("in their place", {"ds.json": '{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 1}}}\n'}),
    good(
        "what DeepSpeed reads there",
        {
            "ds.json": '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1},\n'
            '  "legacy_fusion": false}}\n'
        },
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both sections."""
    view = view_of(doc, context)
    for section in SECTIONS:
        words = flat(view, section)
        if not words:
            continue
        told = ", ".join(f"`{word}`" for word in words)
        yield META.finding(
            doc.key(f"/{section}/{words[0]}"),
            f"{told} {'is' if len(words) == 1 else 'are'} next to `type` in `{section}`, where nothing reads "
            f"{'it' if len(words) == 1 else 'them'}: {view.raw(f'/{section}/type')} uses its "
            f"{'default' if len(words) == 1 else 'defaults'}",
            hint="Move into `params`",
            related=tuple(doc.key(f"/{section}/{word}", "and this") for word in words[1:]),
            fix=_fix(view, section, words),
            pointer=f"/{section}/{words[0]}",
            facts={"with": f"/{section}"},
        )


def _fix(view: ConfigView, section: str, words: list[str]) -> Fix | None:
    doc = view.doc
    texts = {word: worded(view, f"/{section}/{word}") for word in words}
    removed = [delete_member(doc, f"/{section}/{word}") for word in words]
    if len(words) == 1 and doc.has(f"/{section}/params") and doc.get(f"/{section}/params") is not None:
        added = insert_member(doc, f"/{section}/params", words[0], texts[words[0]])
    elif not doc.has(f"/{section}/params") and all(removed) and doc.dialect == "json":
        pairs = ", ".join(f'"{word}": {text}' for word, text in texts.items())
        place = doc.members[f"/{section}/{words[0]}"]
        last = doc.members[f"/{section}/{words[-1]}"]
        between = doc.source.text[place.start : last.end]
        # They stand side by side, without a comment between: the whole piece is replaced.
        members = [doc.members[p] for _, p, _ in doc.children(f"/{section}") if p in doc.members]
        inside = sum(place.start <= m.start <= last.start for m in members)
        if inside != len(words) or any(mark in between for mark in ("//", "#", "/*")):
            return None
        edit = Edit(doc.path, type(place)(place.start, last.end), f'"params": {{{pairs}}}')
        return Fix("Move into `params`", (edit,))
    else:
        return None
    edits = (*added, *(edit for found in removed for edit in found))
    return Fix("Move into `params`", edits) if added and all(removed) else None
