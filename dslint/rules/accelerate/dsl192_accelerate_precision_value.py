"""A `mixed_precision` in an accelerate config that accelerate does not know, or a bare `no`.

**What.** The words are `no`, `fp16`, `bf16` and `fp8`, and `no` needs quotes: without them YAML reads it as false.

**Why it hurts.** `ValueError: Unknown mixed_precision mode: fp32`; for the bare `no`, `AttributeError: 'bool' object
has no attribute 'lower'`. Both come before anything starts.

**Fix.** `'no'` for `no` and `fp32` (safe fix), the word that is meant for others.

**When it stays quiet.** Capitals (`BF16`), `null`; a flag of the command that passes a precision or cannot be read.

**Evidence.** `accelerate/utils/launch.py` (`prepare_deepspeed_cmd_env`), `prepare_multi_gpu_env`,
`prepare_simple_launcher_cmd_env`, run with accelerate 1.15 for DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.names import names
from dslint.model.accelerate.view import AccelerateView, view_of
from dslint.model.context import Context
from dslint.model.deepspeed.suggest import closest
from dslint.model.yamledits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL192",
    name="accelerate-precision-value",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="A `mixed_precision` that accelerate does not know, or `no` without quotes",
    fix="safe",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
mixed_precision: fp32
num_machines: 1
num_processes: 8
deepspeed_config:
  zero_stage: 2
"""
_NO = _FILE.replace("fp32", "'no'")
_RUN = "accelerate launch --config_file zero2.yaml --mixed_precision bf16 train.py\n"

EXAMPLES = (
    bad("full precision is `no`", {"zero2.yaml": _FILE}, "zero2.yaml:3", fixed={"zero2.yaml": _NO}),
    bad("`no` without quotes", {"zero2.yaml": _FILE.replace("fp32", "no  # fp32")}, "zero2.yaml:3",
        fixed={"zero2.yaml": _NO.replace("'no'", "'no'  # fp32")}),
    bad("no such word", {"zero2.yaml": _FILE.replace("fp32", "bfloat16")}, "zero2.yaml:3"),
    good("in quotes", {"zero2.yaml": _NO}),
    good("capitals", {"zero2.yaml": _FILE.replace("fp32", "BF16")}),
    good("a flag replaces it", {"zero2.yaml": _FILE, "run.sh": _RUN}),
)  # fmt: skip

_KEY = "/mixed_precision"
_MEANT = {"fp32": "'no'", "float32": "'no'", "none": "'no'", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The word that the processes will get."""
    view = view_of(doc, context)
    value = doc.get(_KEY)
    if not view.is_local or value is None or not view.stated("mixed_precision").is_known:
        return
    if isinstance(value, bool):
        word = "'no'" if value is False else None
        written = doc.source.text[doc.values[_KEY].start : doc.values[_KEY].end]
        told = f"`{written}` without quotes is a boolean in YAML, and accelerate stops with an AttributeError"
        yield _finding(view, f"{told} about `bool`", word)
    elif str(value).lower() not in names("precisions"):
        near = _MEANT.get(str(value).lower()) or closest(str(value), [n for n in names("precisions") if n != "no"])
        yield _finding(view, f"`{value}` is not a mixed precision: accelerate stops with a ValueError", near)


def _finding(view: AccelerateView, message: str, word: str | None) -> Finding:
    edits = replace_value(view.doc, _KEY, word) if word else ()
    safe = word == "'no'"
    return META.finding(
        view.doc.value(_KEY),
        message,
        hint=f"Write `{word}`" if word else "Write `'no'`, `fp16`, `bf16` or `fp8`",
        fix=Fix(f"Write `{word}`", edits, Safety.SAFE if safe else Safety.UNSAFE) if edits else None,
        severity=view.severity(Severity.ERROR),
        pointer=_KEY,
    )
