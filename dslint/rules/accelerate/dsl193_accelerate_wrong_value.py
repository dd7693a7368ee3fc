"""A value in an accelerate config that accelerate or DeepSpeed cannot read.

**What.** `zero_stage` is a whole number from 0 to 3, `gradient_clipping` a number or `auto`,
`gradient_accumulation_steps` a whole number above 0 or `auto`, `offload_*_device` one of `none`, `cpu`, `nvme`,
`zero3_init_flag` a switch, `gpu_ids` a text (one number needs quotes), `num_machines` a number without quotes,
`deepspeed_config` a mapping.

**Why it hurts.** The values go through the environment to every process and fail there, in words that name no key:
`invalid literal for int() with base 10: 'two'`, `could not convert string to float: 'none'`, `invalid truth value`,
`'int' object has no attribute 'split'`.

**Fix.** The value that is meant; quotes around `gpu_ids` are a safe fix.

**When it stays quiet.** Other numbers in quotes, which the environment makes texts anyway; `null`; what a flag of the
command replaces; runs without DeepSpeed, for its keys.

**Evidence.** `accelerate/utils/launch.py` (`prepare_deepspeed_cmd_env`) and `accelerate/utils/dataclasses.py`
(`DeepSpeedPlugin.__post_init__`), run with each of these values; the stage, the steps and the devices are refused by
DeepSpeed itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.accelerate.view import SECTION, AccelerateView, view_of
from dslint.model.context import Context
from dslint.model.yamledits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL193",
    name="accelerate-wrong-value",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="A value of an accelerate config that cannot be read, such as `zero_stage: two`",
    fix="safe",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
gpu_ids: 0,1
num_machines: 1
num_processes: 2
deepspeed_config:
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  offload_optimizer_device: none
  zero3_init_flag: false
  zero_stage: 2
"""

EXAMPLES = (
    bad("machines in quotes", {"zero2.yaml": _FILE.replace("machines: 1", "machines: '1'")}, "zero2.yaml:4"),
    bad("a stage in words", {"zero2.yaml": _FILE.replace("stage: 2", "stage: two")}, "zero2.yaml:11"),
    bad("no such stage", {"zero2.yaml": _FILE.replace("stage: 2", "stage: 4")}, "zero2.yaml:11"),
    bad("clipping switched off by a word", {"zero2.yaml": _FILE.replace("1.0", "none")}, "zero2.yaml:8"),
    bad("a device that is none", {"zero2.yaml": _FILE.replace("device: none", "device: gpu")}, "zero2.yaml:9"),
    bad("one GPU", {"one.yaml": _FILE.replace("0,1", "3")}, "one.yaml:3",
        fixed={"one.yaml": _FILE.replace("0,1", "'3'")}),
    bad("a path instead of a section", {
        "zero2.yaml": _FILE[: _FILE.index("deepspeed_config")] + "deepspeed_config: ds.json\n",
    }, "zero2.yaml:6"),
    good("right values", {"zero2.yaml": _FILE}),
    good("left to the script", {"zero2.yaml": _FILE.replace("1.0", "auto").replace("s: 4", "s: auto")}),
    good("numbers in quotes", {"zero2.yaml": _FILE.replace("e: 2", "e: '2'").replace("s: 4", "s: '4'")}),
    good("a flag replaces it", {
        "zero2.yaml": _FILE.replace("stage: 2", "stage: two"),
        "run.sh": "accelerate launch --config_file zero2.yaml --zero_stage 2 train.py\n",
    }),
)  # fmt: skip

_WHOLE = re.compile(r"\s*[+-]?\d+(_\d+)*\s*")


def _stage(value: Any) -> bool:
    # The value passes through the environment as text; ``int`` reads it.
    return not isinstance(value, bool) and _WHOLE.fullmatch(str(value)) is not None and 0 <= int(str(value)) <= 3


def _clipping(value: Any) -> bool:
    if value == "auto":
        return True
    try:
        float(str(value).lower())
    except ValueError:
        return False
    return not isinstance(value, bool)


def _steps(value: Any) -> bool:
    return value == "auto" or (not isinstance(value, bool) and str(value).isdigit() and int(str(value)) > 0)


def _device(value: Any) -> bool:
    return str(value).lower() in ("none", "cpu", "nvme")


_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "zero_stage": (_stage, "a whole number from 0 to 3"),
    "gradient_clipping": (_clipping, "a number or `auto`"),
    "gradient_accumulation_steps": (_steps, "a whole number above 0 or `auto`"),
    "offload_optimizer_device": (_device, "`none`, `cpu` or `nvme`"),
    "offload_param_device": (_device, "`none`, `cpu` or `nvme`"),
}


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The values that many processes will read."""
    view = view_of(doc, context)
    if not view.is_local:
        return
    yield from _gpu_ids(view)
    yield from _machines(view)
    section = doc.get(SECTION)
    if section is not None and not isinstance(section, dict) and view.is_deepspeed:
        yield _finding(
            view, SECTION, "`deepspeed_config` is not a mapping: `accelerate launch` stops", "Write its keys below"
        )
    elif view.is_deepspeed:
        # Beside a config file the other values are refused whatever they are.
        if view.config_file.is_absent:
            yield from _section(view)
        yield from _init_flag(view)


def _section(view: AccelerateView) -> Iterator[Finding]:
    for name, (accepts, expected) in _VALUES.items():
        fact = view.stated(name)
        if fact.is_known and not accepts(fact.get()):
            told = f"`{name}: {view.doc.source.text[slice(*_span(view, name))]}` is invalid, it must be {expected}"
            yield _finding(view, view.pointer(name), f"{told}: every process stops", f"Write {expected}")


def _init_flag(view: AccelerateView) -> Iterator[Finding]:
    flag = view.stated("zero3_init_flag")
    if flag.is_known and view.truth("zero3_init_flag").is_unknown:
        told = f"`zero3_init_flag: {flag.get()}` is not a switch: every process stops with `invalid truth value`"
        yield _finding(view, view.pointer("zero3_init_flag"), told, "Write `true` or `false`")


def _span(view: AccelerateView, name: str) -> tuple[int, int]:
    span = view.doc.values[view.pointer(name)]
    return span.start, min(span.end, span.start + 40)


def _gpu_ids(view: AccelerateView) -> Iterator[Finding]:
    value = view.doc.get("/gpu_ids")
    if isinstance(value, int) and not isinstance(value, bool) and view.stated("gpu_ids").is_known:
        told = f"`gpu_ids: {value}` is a number but must be a text: `accelerate launch` stops with an AttributeError"
        edits = replace_value(view.doc, "/gpu_ids", f"'{value}'")
        fix = Fix("Put quotes around the number", edits) if edits else None
        yield _finding(view, "/gpu_ids", told, f"Write `'{value}'`", fix)


def _machines(view: AccelerateView) -> Iterator[Finding]:
    value = view.doc.get("/num_machines")
    if isinstance(value, str) and view.stated("num_machines").is_known:
        told = f"`num_machines: {value[:40]}` is a text but must be a number: accelerate stops with a TypeError"
        yield _finding(view, "/num_machines", told, "Write a whole number without quotes")


def _finding(view: AccelerateView, pointer: str, message: str, hint: str, fix: Fix | None = None) -> Finding:
    severity = view.severity(Severity.ERROR)
    return META.finding(view.doc.value(pointer), message, hint=hint, fix=fix, severity=severity, pointer=pointer)
