"""**What.** `accelerate launch` starts the Trainer of transformers with settings of DeepSpeed in its YAML file, and the
script gets a DeepSpeed config of its own (`--deepspeed ds.json`). accelerate refuses the two together, as it does for a
`deepspeed_config_file` in the YAML file: `zero_stage`, `gradient_clipping`, `gradient_accumulation_steps`,
`offload_*`, `zero3_save_16bit_model` in the section, and `mixed_precision` at the top level.

**Why it hurts.** Every process stops in `TrainingArguments` with `ValueError: When using deepspeed_config_file, the
following accelerate config variables will be ignored`, which names a key that nobody wrote.

**Fix.** One of the two: delete the settings from the YAML file, or do not pass `--deepspeed`.

**When it stays quiet.** `zero3_init_flag` and launcher settings, which are allowed; a YAML file of another type; a
script that is no Trainer, or whose config is not known; `mixed_precision` that the command passes as a flag.

**Evidence.** `TrainingArguments.__post_init__` of transformers makes `DeepSpeedPlugin(hf_ds_config=...)`, whose
`_deepspeed_config_checks` raise; run with transformers 5 and accelerate 1.15.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.accelerate.plans import view_of_plan
from dslint.model.accelerate.view import REFUSED_BESIDE_FILE, SECTION, AccelerateView
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL480",
    name="accelerate-fields-beside-script-config",
    kind="plan",
    severity=Severity.ERROR,
    summary="Settings in the YAML file of accelerate and a DeepSpeed config passed to the Trainer: every process stops",
    versions=("accelerate>=0.20",),
    references=("https://github.com/huggingface/accelerate/issues/936",),
    depends_on_run=True,
    needs=("accelerate",),
)

_YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  zero3_init_flag: false
  zero_stage: 2
"""
_ALLOWED = _YAML.replace("  zero_stage: 2\n", "")
_DS = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'
_RUN = "accelerate launch --config_file zero2.yaml train.py --output_dir out --deepspeed ds.json\n"
_REST = {"train.py": TRAINER, "ds.json": _DS}

EXAMPLES = (
    bad("a stage here, a config there", {"zero2.yaml": _YAML, "run.sh": _RUN, **_REST}, "zero2.yaml:7"),
    bad("a precision here, a config there", {
        "zero2.yaml": _ALLOWED + "mixed_precision: bf16\n",
        "run.sh": _RUN,
        **_REST,
    }, "zero2.yaml:7"),
    good("the file only starts the processes", {"zero2.yaml": _ALLOWED, "run.sh": _RUN, **_REST}),
    good("the script gets no config", {
        "zero2.yaml": _YAML,
        "run.sh": _RUN.replace(" --deepspeed ds.json", ""),
        "train.py": TRAINER,
    }),
    good("data parallelism", {
        "zero2.yaml": _YAML[: _YAML.index("deepspeed_config")].replace("DEEPSPEED", "MULTI_GPU"),
        "run.sh": _RUN,
        **_REST,
    }),
)  # fmt: skip


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The file, the reader of the script's config, and the config."""
    view = view_of_plan(plan, context)
    if view is None or not view.is_deepspeed or not view.config_file.is_absent:
        return
    if plan.consumer.get_or("") != "hf" or not plan.config_path.is_known:
        return
    found = _refused(view)
    if not found or any(peer.is_earlier for peer in plan.peers):
        return
    names = ", ".join(f"`{pointer.rpartition('/')[2]}`" for pointer in found)
    yield META.finding(
        view.doc.key(found[0]),
        f"{names} is set here, but `{plan.config_path.get()}` is passed to the Trainer: every process stops with a "
        "ValueError",
        hint="Delete it here and set it in the DeepSpeed config, or do not pass the config to the script",
        related=_related(plan),
        severity=Severity.WARNING if plan.command.in_docs else view.severity(Severity.ERROR),
        pointer=found[0],
        facts={"with": " ".join(found)},
    )


def _refused(view: AccelerateView) -> list[str]:
    found = [f"{SECTION}/{name}" for name in REFUSED_BESIDE_FILE if view.doc.has(f"{SECTION}/{name}")]
    if view.doc.get("/mixed_precision") is not None and view.flag("mixed_precision").is_absent:
        found.append("/mixed_precision")
    return found


def _related(plan: RunPlan) -> tuple[Location, ...]:
    named = tuple(place.labelled("the config of the script") for place in plan.config_path.origins)
    return (*named, plan.command.location.labelled("the command that starts this run"))
