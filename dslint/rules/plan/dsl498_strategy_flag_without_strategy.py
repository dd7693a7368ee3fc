"""**What.** `accelerate launch` gets a flag that belongs to a strategy, `--gradient_accumulation_steps 8` or
`--zero_stage 2` of DeepSpeed, `--fsdp_sharding_strategy` of FSDP, and the run has another strategy.

**Why it hurts.** accelerate reads these flags only for their strategy, and says nothing otherwise: the run accumulates
nothing, clips nothing and shards nothing.

**Fix.** Choose the strategy (`--use_deepspeed`, `--use_fsdp`, or `distributed_type` in the file), or say it in the
script: `Accelerator(gradient_accumulation_steps=8)`.

**When it stays quiet.** When nobody says which strategy the run has: without a flag and without a config file that is
read, the file in the home directory decides.

**Evidence.** accelerate 1.15, `commands/launch.py` (the groups of arguments: "useful only when ... flag is passed") and
`utils/launch.py`: only `prepare_deepspeed_cmd_env` writes `ACCELERATE_GRADIENT_ACCUMULATION_STEPS`, and `FSDP_...` is
set with `use_fsdp` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import Flag
from dslint.model.plan.counts import strategy_of
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL498",
    name="strategy-flag-without-strategy",
    kind="plan",
    severity=Severity.WARNING,
    summary="A flag of `accelerate launch` that belongs to a strategy which the run does not have",
    versions=("accelerate>=0.20",),
    references=("https://huggingface.co/docs/accelerate/package_reference/cli",),
    depends_on_run=True,
    needs=(
        "--gradient_accumulation_steps", "--gradient_clipping", "--zero_stage", "--offload_optimizer_device",
        "--offload_param_device", "--deepspeed_config_file", "--fsdp_sharding_strategy",
        "--fsdp_auto_wrap_policy", "--fsdp_transformer_layer_cls_to_wrap", "--fsdp_offload_params",
    ),
    no_experiment="accelerate's launcher never reads the flag: there is nothing to run",
)  # fmt: skip

_FILE = "compute_environment: LOCAL_MACHINE\ndistributed_type: {}\nnum_machines: 1\nnum_processes: 4\nuse_cpu: false\n"
_RUN = "accelerate launch --config_file acc.yaml {} train.py\n"
_SCRIPT = {"train.py": "print()\n"}


def _files(kind: str, flags: str) -> dict[str, str]:
    return {"run.sh": _RUN.format(flags), "acc.yaml": _FILE.format(kind), **_SCRIPT}


EXAMPLES = (
    bad("accumulation without DeepSpeed", _files("MULTI_GPU", "--gradient_accumulation_steps 8"), "run.sh:1 warning"),
    bad(
        "a stage beside --multi_gpu",
        {"run.sh": "accelerate launch --multi_gpu --num_processes 4 --zero_stage 2 train.py\n", **_SCRIPT},
        "run.sh:1 warning",
    ),
    bad("FSDP in a run of DDP", _files("MULTI_GPU", "--fsdp_sharding_strategy FULL_SHARD"), "run.sh:1 warning"),
    good("DeepSpeed in the file", _files("DEEPSPEED", "--gradient_accumulation_steps 8 --zero_stage 2")),
    good("DeepSpeed by a flag", _files("MULTI_GPU", "--use_deepspeed --gradient_accumulation_steps 8")),
    good("nobody says the strategy", {
        "run.sh": "accelerate launch --gradient_accumulation_steps 8 train.py\n", **_SCRIPT,
    }),
    good("an option of the script", {
        "run.sh": "accelerate launch --multi_gpu --num_processes 4 train.py --gradient_accumulation_steps 8\n",
        "train.py": "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--gradient_accumulation_steps', type=int)\np.parse_args()\n",
    }),
)  # fmt: skip

_OF = {
    "DEEPSPEED": re.compile(
        r"--(?:gradient_accumulation_steps|gradient_clipping|zero_stage|zero3_init_flag|zero3_save_16bit_model"
        r"|offload_(?:optimizer|param)_(?:device|nvme_path)|deepspeed_(?:config_file|hostfile|multinode_launcher))"
    ),
    "FSDP": re.compile(r"--fsdp_\w+"),
}
_SWITCH = {"DEEPSPEED": "--use_deepspeed", "FSDP": "--use_fsdp"}
# Strategies that have no flags of these two groups.
_OTHERS = frozenset({"MULTI_GPU", "MULTI_CPU", "NO", "FSDP", "DEEPSPEED"})


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Flags of a strategy that is not that of the run."""
    command = plan.command
    if command.launcher != "accelerate" or command.may_hide_launcher_flags():
        return
    strategy = strategy_of(command, plan.accelerate)
    if strategy.get_or("") not in _OTHERS:
        return
    for name, pattern in _OF.items():
        if strategy.get() == name:
            continue
        for flag in command.launcher_flags:
            if pattern.fullmatch(flag.name):
                yield _finding(plan, flag, name, strategy)


def _finding(plan: RunPlan, flag: Flag, name: str, strategy: Fact[str]) -> Finding:
    value = flag.value.text if flag.value is not None and flag.value.text is not None else ""
    return META.finding(
        flag.location,
        f"`{f'{flag.name} {value}'.strip()}` has no effect: it belongs to {name}, and the run is {strategy.get()}",
        hint=f"Choose the strategy (`{_SWITCH[name]}`), or say it in the script: `Accelerator(...)`",
        related=strategy.origins[:1],
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"flag": flag.name, "strategy": strategy.get()},
    )
