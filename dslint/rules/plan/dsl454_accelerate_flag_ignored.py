"""**What.** `accelerate launch` gets a DeepSpeed config file and, on the command line, a flag that says otherwise:
`--zero_stage 3` beside a file with stage 2, `--gradient_clipping 1.0` beside a file without clipping.

**Why it hurts.** The flag only fills `"auto"` in the file. Everywhere else the file wins silently: the run has
another stage, another accumulation, no clipping, no offload. (The same names in the YAML file of accelerate stop the
run: DSL199.)

**Fix.** Delete the flag, and say it in the DeepSpeed config; or write `"auto"` there.

**When it stays quiet.** For equal values and `"auto"`, for runs without DeepSpeed, when the config or a value is not
known, for `--mixed_precision` (DSL483), and for accumulation steps that the file leaves to the script.

**Evidence.** accelerate 1.15, `DeepSpeedPlugin.__post_init__` (`fill_match(..., must_match=False)`), run with each
flag.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.plans import launched_config, view_of_plan
from dslint.model.context import Context
from dslint.model.launch.command import Flag
from dslint.model.launch.flagedits import without_flag
from dslint.model.plan.runplan import RunPlan
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL454",
    name="accelerate-flag-ignored",
    kind="plan",
    severity=Severity.WARNING,
    summary="A flag of `accelerate launch` is ignored because the DeepSpeed config says otherwise",
    fix="safe",
    versions=("accelerate>=0.20",),
    references=("https://github.com/huggingface/accelerate/issues/936",),
    depends_on_run=True,
    needs=("config",),
)

_RUN = "accelerate launch --use_deepspeed --num_processes 8 --deepspeed_config_file ds.json --zero_stage 3 train.py\n"
_DS = '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}}\n'
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("another stage", {"run.sh": _RUN, "ds.json": _DS, **_SCRIPT}, "run.sh:1",
        {"run.sh": _RUN.replace(" --zero_stage 3", "")}),
    bad("no offload", {"run.sh": _RUN.replace("--zero_stage 3", "--offload_optimizer_device cpu"), "ds.json": _DS,
                       **_SCRIPT}, "run.sh:1"),
    good("the same", {"run.sh": _RUN.replace("3", "2"), "ds.json": _DS, **_SCRIPT}),
    good("the same clipping, as a number", {
        "run.sh": _RUN.replace("--zero_stage 3", "--gradient_clipping 1"), "ds.json": _DS, **_SCRIPT,
    }),
    good("the file leaves it open", {"run.sh": _RUN, "ds.json": _DS.replace("2", '"auto"'), **_SCRIPT}),
    good("no config file", {"run.sh": _RUN.replace("--deepspeed_config_file ds.json ", ""), **_SCRIPT}),
    good("an option of the script", {
        "run.sh": _RUN.replace(" --zero_stage 3", "").replace(".py", ".py --zero_stage 3"), "ds.json": _DS, **_SCRIPT,
    }),
)  # fmt: skip

_POINTERS = {
    "--zero_stage": "/zero_optimization/stage",
    "--gradient_clipping": "/gradient_clipping",
    "--gradient_accumulation_steps": "/gradient_accumulation_steps",
    "--offload_optimizer_device": "/zero_optimization/offload_optimizer/device",
    "--offload_param_device": "/zero_optimization/offload_param/device",
}


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Flags that the config overrules."""
    command, config = plan.command, plan.config
    if command.launcher != "accelerate" or config is None or config.problems or plan.config_is_rewritten:
        return
    if not launched_config(plan, view_of_plan(plan, context)).is_known:
        return
    for name, pointer in _POINTERS.items():
        flag = command.launcher_flag(name)
        given = flag.value.text if flag is not None and flag.value is not None else None
        stated = config.get(pointer)
        if flag is None or given is None or _agree(given, stated) or (stated is None and "accumulation" in name):
            continue
        yield _finding(plan, config, flag, pointer, given)


def _agree(given: str, stated: object) -> bool:
    if stated == "auto" or isinstance(stated, (dict, list)):
        return True
    if stated is None:
        return given.lower() in ("none", "0")
    try:
        return float(given) == float(str(stated))
    except ValueError:
        return given.lower() == str(stated).lower()


def _finding(plan: RunPlan, config: DataDoc, flag: Flag, pointer: str, given: str) -> Finding:
    stated = config.get(pointer)
    key = pointer.strip("/").replace("/", ".")
    says = f"`{key}` is {stated} there" if stated is not None else f"it has no `{key}`"
    place = config.value(pointer) if stated is not None else config.value("")
    return META.finding(
        flag.location,
        f"`{flag.name} {given}` has no effect: the DeepSpeed config wins, and {says}",
        hint="Delete the flag and set it in the DeepSpeed config",
        related=(place.labelled("the DeepSpeed config"),),
        fix=without_flag(plan.command, flag) if stated is not None else None,
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"flag": flag.name, "given": given, "pointer": pointer},
    )
