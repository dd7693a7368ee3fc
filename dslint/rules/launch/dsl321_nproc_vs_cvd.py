"""**What.** A launcher starts more processes on a node than `CUDA_VISIBLE_DEVICES` shows them GPUs.

**Why it hurts.** The processes beyond the last GPU stop with `CUDA error: invalid device ordinal`, or two processes
share a GPU and NCCL refuses it (`Duplicate GPU detected`). With fewer processes than GPUs the others are idle: that is
an info, for some runs spread one model over several GPUs. So are several processes on a single GPU, which is how people
try out distributed code with gloo.

**Fix.** Make both numbers agree.

**When it stays quiet.** For an empty `CUDA_VISIBLE_DEVICES` (a run on CPUs), names or numbers that are not known, a
process count that only a default says, `deepspeed` (DSL322) and `accelerate launch --gpu_ids` or `--cpu`; the info also
for a single process, and for ms-swift, which can spread a model.

**Evidence.** CUDA numbers the visible devices from 0; the experiment needs a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.words import counted
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.devices import visible_devices
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL321",
    name="nproc-vs-cvd",
    kind="launch",
    severity=Severity.WARNING,
    summary="More processes on a node than CUDA_VISIBLE_DEVICES shows GPUs",
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars",),
    needs=("CUDA_VISIBLE_DEVICES",),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "eight processes, four GPUs",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 8 train.py\n", **_SCRIPT},
        "run.sh:1 warning",
    ),
    bad(
        "both are exported",
        {
            "run.sh": "export CUDA_VISIBLE_DEVICES=0,3\nNGPU=4\naccelerate launch --num_processes $NGPU "
            "--num_machines 1 train.py\n",
            **_SCRIPT,
        },
        "run.sh:3 warning",
    ),
    bad(
        "ms-swift reads the number from a variable",
        {"run.sh": "NPROC_PER_NODE=4 \\\nCUDA_VISIBLE_DEVICES=0,1 \\\nswift sft --model a\n"},
        "run.sh:1 warning",
    ),
    bad(
        "two processes try out one GPU",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node 2 train.py\n", **_SCRIPT},
        "run.sh:1 info",
    ),
    bad(
        "four of eight are idle",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 torchrun --nproc_per_node 4 train.py\n", **_SCRIPT},
        "run.sh:1 info",
    ),
    good(
        "as many processes as GPUs",
        {
            "run.sh": "CUDA_VISIBLE_DEVICES=4,5 torchrun --nproc_per_node 2 train.py\n"
            "CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_machines 2 --machine_rank 1 --num_processes 4 train.py\n",
            **_SCRIPT,
        },
    ),
    good("CPUs", {"run.sh": "CUDA_VISIBLE_DEVICES= torchrun --nproc_per_node 8 train.py\n", **_SCRIPT}),
    good(
        "one process drives them all",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 1 train.py\n", **_SCRIPT},
    ),
    good(
        "a model over several GPUs",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=2 swift sft --model a\n", **_SCRIPT},
    ),
    good(
        "numbers that are not known",
        {
            "run.sh": "CUDA_VISIBLE_DEVICES=$1 torchrun --nproc_per_node 8 train.py\n"
            "CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node $N train.py\n",
            **_SCRIPT,
        },
    ),
)
_COUNTS = {
    "torchrun": ("--nproc_per_node", "PET_NPROC_PER_NODE"),
    "accelerate": ("--num_processes", ""),
    "swift": ("", "NPROC_PER_NODE"),
    "xtuner": ("", "NPROC_PER_NODE"),
    "llamafactory": ("", "NPROC_PER_NODE"),
}


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Process counts beside the number of visible GPUs."""
    del context
    for command in doc.commands:
        visible = visible_devices(command)
        count = _processes(command)
        if visible is None or count is None or count == len(visible.ids):
            continue
        more = count > len(visible.ids)
        if not more and (count == 1 or command.launcher == "swift"):
            continue
        there = f"{len(visible.ids)} GPU{'s' if len(visible.ids) > 1 else ''} (`CUDA_VISIBLE_DEVICES={visible.text}`)"
        effect = (
            "the others get `invalid device ordinal` or share a GPU"
            if more
            else f"{len(visible.ids) - count} of them stay idle"
        )
        place = command.launcher_flag(_COUNTS[command.launcher][0])
        yield META.finding(
            place.location if place is not None else command.processes_per_node.origins[0],
            f"{counted(count, 'process')} on a node see{'s' if count == 1 else ''} {there}: {effect}",
            hint="Make both numbers agree",
            related=(*visible.origins, *command.processes_per_node.origins[1:]),
            severity=Severity.WARNING if more and len(visible.ids) > 1 and not doc.in_docs else Severity.INFO,
            facts={"processes": count, "devices": len(visible.ids)},
        )


def _processes(command: LaunchCommand) -> int | None:
    """The processes on a node that somebody states."""
    flag, variable = _COUNTS.get(command.launcher, ("", ""))
    stated = bool(flag and command.launcher_flag(flag)) or (bool(variable) and variable in command.env)
    if not stated or command.hides_options or command.launcher_flag("--gpu_ids", "--cpu") is not None:
        return None
    count = command.processes_per_node
    if command.launcher == "accelerate" and count.is_absent and command.launcher_flag("--config_file") is None:
        count = command.world_size  # one machine, unless a config file says otherwise
    return count.get() if count.is_known and count.origins else None
