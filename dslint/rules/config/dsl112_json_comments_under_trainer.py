"""Comments, trailing commas or bare keys in a config that transformers or accelerate reads.

**What.** DeepSpeed reads its config as Hjson: `#` and `//` comments, a comma before a closing brace, keys without
quotes. transformers and accelerate open the same file with Python's `json`, which knows none of these.

**Why it hurts.** The run stops at start-up with `json.decoder.JSONDecodeError`, although DeepSpeed alone would read
the file.

**Fix.** Write plain JSON. `--fix` deletes comments and surplus commas and adds quotes; what the file says stays.

**When it stays quiet.** DeepSpeed or Lightning reads the file, or nobody knows who does. It is a warning where only a
value that is left as `"auto"` shows that a Trainer is meant, because a script may read the file by itself. A file that
DeepSpeed cannot read either is `syntax-error`.

**Evidence.** `HfDeepSpeedConfig.__init__` in `accelerate/utils/deepspeed.py`: `json.load`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.plainjson import as_plain_json, json_refusal
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL112",
    name="json-comments-under-trainer",
    kind="config",
    severity=Severity.ERROR,
    summary="Comments or surplus commas in a config that transformers or accelerate reads as plain JSON",
    fix="safe",
    depends_on_run=True,
    consumers=("hf", "accelerate"),
    references=("https://huggingface.co/docs/transformers/deepspeed",),
)

_COMMENTS = """\
{
  // for 8 GPUs
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {
    "stage": 2, # no offload
    overlap_comm: false,
  },
}
"""
_PLAIN = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": false
  }
}
"""

EXAMPLES = (
    bad(
        "Hjson, and the Trainer reads it",
        {"ds.json": _COMMENTS},
        "ds.json:2 error",
        fixed={"ds.json": _PLAIN},
        consumer="hf",
    ),
    bad(
        "a value is left to the Trainer",
        {"ds.json": _COMMENTS},
        "ds.json:2 warning",
        fixed={"ds.json": _PLAIN},
    ),
    bad(
        "a comma too many",
        {"ds.json": _PLAIN.replace("false", "false,")},
        "ds.json:5 error",
        fixed={"ds.json": _PLAIN},
        consumer="accelerate",
    ),
    good("DeepSpeed reads Hjson", {"ds.json": _COMMENTS.replace('"auto"', "4")}, consumer="deepspeed"),
    good("nobody knows who reads it", {"ds.json": _COMMENTS.replace('"auto"', "4")}),
    good("plain JSON", {"ds.json": _PLAIN}, consumer="hf"),
    good(
        "a comment sign in a text",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 1}, "_note": "# // not a comment,}"}\n'},
        consumer="hf",
    ),
)

# In a script or a launch file the text is a part of the file only.
_SUFFIXES = (".json", ".hjson", ".jsonc", ".json5")


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The text of the file, read as Python's ``json`` does."""
    if doc.problems or not doc.path.endswith(_SUFFIXES) or not isinstance(doc.data, dict):
        return
    refusal = json_refusal(doc)
    if refusal is None:
        return
    edits = as_plain_json(doc)
    stated = context.consumer.is_known
    reader = {"accelerate": "accelerate"}.get(context.consumer.get_or(""), "transformers")
    others = _places(doc)
    yield META.finding(
        others[0] if others else doc.source.location(refusal),
        f"{reader} reads this file as plain JSON and stops with `JSONDecodeError`: {_what(doc)}",
        hint="Write plain JSON: no comments, no comma before a closing bracket, quotes around keys and texts",
        related=others[1:6],
        fix=Fix("Write plain JSON", edits) if edits else None,
        severity=Severity.ERROR if stated else Severity.WARNING,
        pointer="",
    )


def _places(doc: DataDoc) -> tuple[Location, ...]:
    found = [
        *((span, "a comment") for span in doc.comments),
        *((span, "a comma before a closing bracket") for span in doc.trailing_commas),
        *((problem.span, problem.message) for problem in doc.relaxed),
    ]
    return tuple(doc.source.location(span, label) for span, label in sorted(found))


def _what(doc: DataDoc) -> str:
    kinds = [
        "comments" * bool(doc.comments),
        "trailing commas" * bool(doc.trailing_commas),
        "unquoted text or missing commas" * bool(doc.relaxed),
    ]
    return ", ".join(kind for kind in kinds if kind)
