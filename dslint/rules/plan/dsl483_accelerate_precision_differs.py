"""**What.** `accelerate launch --mixed_precision` asks for one precision, its DeepSpeed config for another.

**Why it hurts.** `fp16` against `bf16.enabled: true`, or the other way round, stops every process: `ValueError:
--mixed_precision arg cannot be set to fp16 when bf16 is set in the DeepSpeed config file`. Against a precision that the
config switches off, the config wins silently: `--mixed_precision bf16` with `"bf16": {"enabled": false}` trains
in fp32.

**Fix.** `"auto"` in `fp16.enabled` and `bf16.enabled`, which accelerate fills in; or the same precision in both places.

**When it stays quiet.** `"auto"`; a precision that the config does not mention, which accelerate adds; scripts that set
`mixed_precision` themselves; the Trainer of transformers, which has arguments of its own for it.

**Evidence.** `DeepSpeedPlugin.set_mixed_precision` of `accelerate/utils/dataclasses.py`, run with accelerate 1.15.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.accelerate.plans import launched_config, view_of_plan
from dslint.model.context import Context
from dslint.model.deepspeed.config import truth
from dslint.model.plan.runplan import RunPlan
from dslint.parse.data import DataDoc, dotted_key
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL483",
    name="accelerate-precision-differs",
    kind="plan",
    severity=Severity.ERROR,
    summary="`--mixed_precision` of `accelerate launch` contradicts the DeepSpeed config",
    depends_on_run=True,
    needs=("config",),
)

_YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  deepspeed_config_file: ds.json
"""
_SCRIPT = "from accelerate import Accelerator\n\naccelerator = Accelerator()\nprint(accelerator.device)\n"
_DS = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}\n'
_RUN = "accelerate launch --config_file zero2.yaml --mixed_precision fp16 train.py\n"
_PLAIN = "accelerate launch --use_deepspeed --deepspeed_config_file ds.json --mixed_precision fp16 train.py\n"
_FILES = {"zero2.yaml": _YAML, "train.py": _SCRIPT, "ds.json": _DS, "run.sh": _RUN}

EXAMPLES = (
    bad("fp16 against bf16", _FILES, "run.sh:1 error"),
    bad("without a YAML file", {**_FILES, "run.sh": _PLAIN}, "run.sh:1 error"),
    bad("switched off in the config", {
        **_FILES,
        "run.sh": _RUN.replace("fp16", "bf16"),
        "ds.json": _DS.replace("true", "false"),
    }, "run.sh:1 warning"),
    bad("switched on in the config only", {**_FILES, "run.sh": _RUN.replace("fp16", "no")}, "run.sh:1 warning"),
    good("the same", {**_FILES, "run.sh": _RUN.replace("fp16", "bf16")}),
    good("accelerate fills it in", {**_FILES, "ds.json": _DS.replace("true", '"auto"')}),
    good("the script sets it", {
        **_FILES,
        "train.py": _SCRIPT.replace("Accelerator()", 'Accelerator(mixed_precision="bf16")'),
    }),
)  # fmt: skip

_OTHER = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Flag and config of one run."""
    flag = plan.command.launcher_flag("--mixed_precision") if plan.command.launcher == "accelerate" else None
    doc = plan.config
    if flag is None or flag.value is None or doc is None or plan.config_is_rewritten:
        return
    named = launched_config(plan, view_of_plan(plan, context))
    if not named.is_known or plan.consumer.get_or("") != "accelerate" or _sets_precision(plan):
        return
    word = flag.value.text
    said = _contradiction(doc, word) if word in ("no", "fp16", "bf16", "fp8") else None
    if said is None:
        return
    pointer, effect, severity = said
    yield META.finding(
        flag.location,
        f"`--mixed_precision {word}`, but `{dotted_key(pointer)}` is {str(truth(doc.get(pointer))).lower()} "
        f"in `{doc.path}`: {effect}",
        hint='Write `"auto"` in the config, or the same precision in both places',
        related=(doc.value(pointer, "the precision of the DeepSpeed config"), *_places(named.origins)),
        severity=Severity.WARNING if plan.command.in_docs else severity,
        facts={
            "precision": word,
            "raises": severity is Severity.ERROR,
            "config": json.dumps({kind: doc.get(f"/{kind}") for kind in ("fp16", "bf16") if doc.has(f"/{kind}")}),
        },
    )


def _places(origins: tuple[Location, ...]) -> tuple[Location, ...]:
    return tuple(place.labelled("names the config") for place in origins)


def _contradiction(doc: DataDoc, word: str) -> tuple[str, str, Severity] | None:
    """The place in the config, what happens, and how bad it is."""
    on = {kind: truth(doc.get(f"/{kind}/enabled")) for kind in ("fp16", "bf16")}
    if word != "no":
        other, own = _OTHER[word], "fp16" if word == "fp16" else "bf16"
        if on[other]:
            return f"/{other}/enabled", "every process stops with a ValueError", Severity.ERROR
        if on[own] is False and not on[other]:
            return f"/{own}/enabled", "the config wins and the run silently trains in fp32", Severity.WARNING
        return None
    for kind, value in on.items():
        if value:
            return f"/{kind}/enabled", f"the config wins and the run silently trains in {kind}", Severity.WARNING
    return None


def _sets_precision(plan: RunPlan) -> bool:
    return plan.profile is None or plan.profile.sets_precision
