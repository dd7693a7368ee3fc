"""**What.** A time-out in the wrong unit. `DEEPSPEED_TIMEOUT` and `XTUNER_DATASET_TIMEOUT` count minutes and are often
given seconds (`1800`); `NCCL_IB_TIMEOUT` is an exponent from 0 to 31.

**Why it hurts.** 1800 minutes are 30 hours for which a hang holds the GPUs. `DEEPSPEED_TIMEOUT=30m` and `1.5` are no
integers: `import deepspeed` stops with `ValueError`. `NCCL_IB_TIMEOUT` above 31 does not fit into its five bits.

**Fix.** Write minutes; `NCCL_IB_TIMEOUT=22` or `23` is what slow fabrics use.

**When it stays quiet.** Below 600 minutes, and for values that are not known.

**Evidence.** `deepspeed/constants.py`: `timedelta(minutes=int(os.getenv("DEEPSPEED_TIMEOUT", default=10)))`, run with
DeepSpeed 0.19.8; XTuner `dataset/huggingface.py`; the documentation of NCCL.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import Setting, settings, value_span
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL341",
    name="timeout-unit",
    kind="launch",
    severity=Severity.ERROR,
    summary="`DEEPSPEED_TIMEOUT` or another time-out variable in the wrong unit",
    fix="unsafe",
    references=("https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/constants.py",),
    needs=("DEEPSPEED_TIMEOUT", "XTUNER_DATASET_TIMEOUT", "NCCL_IB_TIMEOUT"),
)

_RUN = "deepspeed --num_gpus 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("seconds", {"run.sh": "export DEEPSPEED_TIMEOUT=7200\n" + _RUN, **_SCRIPT}, "run.sh:1 warning",
        {"run.sh": "export DEEPSPEED_TIMEOUT=120\n" + _RUN}),
    bad("a unit that Python's `int` does not know", {"run.sh": "DEEPSPEED_TIMEOUT=30m " + _RUN, **_SCRIPT},
        "run.sh:1 error", {"run.sh": "DEEPSPEED_TIMEOUT=30 " + _RUN}),
    bad("an exponent above 31", {"run.sh": "export NCCL_IB_TIMEOUT=1800\n" + _RUN, **_SCRIPT}, "run.sh:1 warning"),
    good("two hours", {"run.sh": "export DEEPSPEED_TIMEOUT=120 NCCL_IB_TIMEOUT=22\n" + _RUN, **_SCRIPT}),
    good("not known", {"run.sh": "export DEEPSPEED_TIMEOUT=$MINUTES\n" + _RUN, **_SCRIPT}),
)  # fmt: skip

# Who reads them, when it is imported.
_MINUTES = {"DEEPSPEED_TIMEOUT": "DeepSpeed", "XTUNER_DATASET_TIMEOUT": "XTuner"}
# Ten hours.
_LONG = 600


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Variables whose unit is not the one that the value seems to be in."""
    del context
    for setting in settings(doc):
        text = setting.value.strip()
        if setting.name in _MINUTES:
            finding = _minutes(doc, setting, text)
            if finding is not None:
                yield finding
        elif setting.name == "NCCL_IB_TIMEOUT" and text.isdecimal() and int(text) > 31:
            yield META.finding(
                setting.location,
                f"`NCCL_IB_TIMEOUT` is an exponent (4.096 us x 2^n) of five bits: {text} does not fit",
                hint="Write a number from 14 to 23",
                severity=Severity.INFO if doc.in_docs else Severity.WARNING,
                facts={"variable": setting.name, "value": text},
            )


def _minutes(doc: LaunchDoc, setting: Setting, text: str) -> Finding | None:
    facts: dict[str, str | int] = {"variable": setting.name, "value": text}
    if not text or any(mark in text for mark in "<>{}$"):
        return None
    try:
        minutes = int(text)
    except ValueError:
        plain = text[:-1] if text[-1] in "mM" else ""
        return META.finding(
            setting.location,
            f"`{setting.name}` must be a whole number of minutes, not `{text}`: importing"
            f" {_MINUTES[setting.name]} stops"
            " with a ValueError",
            hint="Write the minutes as a whole number",
            fix=_fix(doc, setting, plain) if plain.isdecimal() else None,
            severity=Severity.WARNING if doc.in_docs or setting.name != "DEEPSPEED_TIMEOUT" else None,
            facts=facts,
        )
    if minutes < _LONG:
        return None
    hours = f"{minutes / 60:g} hours" if minutes % 6 == 0 else f"about {round(minutes / 60)} hours"
    return META.finding(
        setting.location,
        f"`{setting.name}` counts minutes: {minutes} are {hours}, and a hang keeps the GPUs that long",
        hint=f"Write {minutes // 60} if seconds are meant",
        fix=_fix(doc, setting, str(minutes // 60)) if minutes % 60 == 0 else None,
        severity=Severity.INFO if doc.in_docs else Severity.WARNING,
        facts=facts,
    )


def _fix(doc: LaunchDoc, setting: Setting, text: str) -> Fix | None:
    span = value_span(doc, setting)
    edits = (Edit(doc.source.path, span, text),) if span is not None else ()
    return Fix(f"Write {text} minutes", edits, Safety.UNSAFE) if edits else None
