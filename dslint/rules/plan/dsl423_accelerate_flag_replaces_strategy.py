"""**What.** `accelerate launch --multi_gpu` with a config file whose `distributed_type` is `FSDP`, `DEEPSPEED` or
`MEGATRON_LM`.

**Why it hurts.** The flag decides, and the type of the file is not looked at: the run is plain DDP, its `fsdp_config`
or `deepspeed_config` has no effect, and a model that was to be sharded is whole on each GPU. Nothing is said.

**Fix.** Delete `--multi_gpu`: the file says it already.

**When it stays quiet.** For files of another type or without a section, when the Trainer of the script gets
`--deepspeed` or `--fsdp` itself, when the script makes a plugin of its own, and when words of the command cannot be
read.

**Evidence.** accelerate 1.15, `commands/launch.py` (`_validate_launch_command`): `distributed_type` counts only where
no such flag is given. Run with a file of FSDP: `ACCELERATE_USE_FSDP` is `true` in the environment of the processes,
and not there with `--multi_gpu`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Safety
from dslint.model.context import Context
from dslint.model.launch.flagedits import without_flag
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL423",
    name="accelerate-flag-replaces-strategy",
    kind="plan",
    severity=Severity.WARNING,
    summary="`accelerate launch --multi_gpu` turns the FSDP or DeepSpeed of its config file into plain DDP",
    fix="unsafe",
    versions=("accelerate>=0.20",),
    depends_on_run=True,
    references=("https://huggingface.co/docs/accelerate/package_reference/cli",),
    needs=("--multi_gpu",),
    no_experiment="the launcher alone decides, and it was run; the memory of a model that is not sharded needs GPUs",
)

_FILE = "compute_environment: LOCAL_MACHINE\ndistributed_type: {}\nnum_machines: 1\nnum_processes: 8\n{}\n"
_FSDP = _FILE.format(
    "FSDP",
    "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_sharding_strategy: FULL_SHARD",
)
_DS = _FILE.format("DEEPSPEED", "deepspeed_config:\n  zero_stage: 2")
_RUN = "accelerate launch --config_file acc.yaml --multi_gpu train.py\n"
_SCRIPT = {"train.py": "from accelerate import Accelerator\naccelerator = Accelerator()\n"}
_PLUGIN = (
    "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
    "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())\n"
)
_TRAINER = (
    "from transformers import HfArgumentParser, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
)

EXAMPLES = (
    bad("FSDP", {"run.sh": _RUN, "acc.yaml": _FSDP, **_SCRIPT}, "run.sh:1",
        {"run.sh": _RUN.replace(" --multi_gpu", "")}),
    bad("DeepSpeed, with a dash", {
        "run.sh": _RUN.replace("multi_gpu", "multi-gpu"), "acc.yaml": _DS, **_SCRIPT,
    }, "run.sh:1"),
    bad("the flag is in a variable", {
        "run.sh": 'FLAGS="--multi_gpu --num_processes 8"\n' + _RUN.replace("--multi_gpu", "$FLAGS"), "acc.yaml": _FSDP,
        **_SCRIPT,
    }, "run.sh:2"),
    bad("the file is made of a name", {
        "run.sh": "KIND=fsdp\n" + _RUN.replace("acc.yaml", "conf/$KIND.yaml"), "conf/fsdp.yaml": _FSDP, **_SCRIPT,
    }, "run.sh:2"),
    good("the file decides", {"run.sh": _RUN.replace(" --multi_gpu", ""), "acc.yaml": _FSDP, **_SCRIPT}),
    good("the file says the same", {"run.sh": _RUN, "acc.yaml": _FILE.format("MULTI_GPU", "gpu_ids: all"), **_SCRIPT}),
    good("an option of the script", {
        "run.sh": "accelerate launch --config_file acc.yaml train.py --multi_gpu\n", "acc.yaml": _FSDP,
        "train.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--multi_gpu', "
        "action='store_true')\np.parse_args()\n",
    }),
    good("the script brings FSDP with it", {"run.sh": _RUN, "acc.yaml": _FSDP, "train.py": _PLUGIN}),
    good("the Trainer is told of FSDP", {
        "run.sh": _RUN[:-1] + " --output_dir out --fsdp full_shard\n", "acc.yaml": _FSDP, "train.py": _TRAINER,
    }),
)  # fmt: skip

_SECTIONS = {"FSDP": "fsdp_config", "DEEPSPEED": "deepspeed_config", "MEGATRON_LM": "megatron_lm_config"}
# By these a script, or its Trainer, chooses the strategy itself.
_OWN = ("--deepspeed", "--fsdp", "--deepspeed_config", "--fsdp_config")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The flag beside the type of the file."""
    command, doc = plan.command, plan.accelerate
    flag = command.launcher_flag("--multi_gpu")
    if command.launcher != "accelerate" or flag is None or doc is None or doc.problems:
        return
    kind = doc.get("/distributed_type")
    section = _SECTIONS.get(kind, "") if isinstance(kind, str) else ""
    if not section or command.launcher_flag("--use_fsdp", "--use_deepspeed", "--cpu", "--tpu") is not None:
        return
    if not doc.get(f"/{section}") or command.script_flag(*_OWN) is not None or plan.chooses_strategy:
        return
    yield META.finding(
        flag.location,
        f"`{flag.name}` replaces the `{kind}` of the config file: the run is plain DDP, and `{section}` has no effect",
        hint=f"Delete `{flag.name}`",
        related=(doc.value("/distributed_type", f"the file says `{kind}`"), doc.key(f"/{section}", "without effect")),
        fix=without_flag(command, flag, Safety.UNSAFE),
        severity=Severity.INFO if command.in_docs else None,
    )
