"""**What.** A launcher starts another number of processes on a node than Slurm gives the job GPUs there
(`--gres=gpu:N`, `--gpus-per-node`, `--gpus-per-task` with one task, `--gpus` of one node). The launcher may be in
a script that the job calls.

**Why it hurts.** With more processes than GPUs the last ones stop with `invalid device ordinal`; with fewer, GPUs
that were waited for in the queue stay idle for the whole run.

**Fix.** Make both numbers agree, best by one variable: `--nproc_per_node $SLURM_GPUS_ON_NODE`.

**When it stays quiet.** When one of the numbers is not known or only a default, when `CUDA_VISIBLE_DEVICES` divides
the GPUs, when several launches of the script share them, and for a single process, which may drive several GPUs.
Fewer processes, where the script speaks of vLLM or another server, or takes some off itself (`$((GPUS - 1))`).

**Evidence.** The manual of Slurm (`--gres`, `--gpus-per-node`: the job sees these GPUs alone).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.words import counted
from dslint.model.context import Context
from dslint.model.launch.devices import VISIBLE
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.slurmjob import PER_NODE, gpus_per_node
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script, place_in_text, started_by, stated_processes

META = RuleMeta(
    code="DSL320",
    name="slurm-gpus-vs-nproc",
    kind="launch",
    severity=Severity.WARNING,
    summary="Another number of processes on a node than Slurm gives GPUs there",
    depends_on_run=True,
    no_experiment="what a job sees of a node is up to Slurm, and the source is its manual",
    references=("https://slurm.schedmd.com/sbatch.html#OPT_gpus-per-node",),
    needs=("srun", "SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_TASK", "SBATCH_GPUS"),
)

_SCRIPT = {"train.py": "print()\n"}
# Some GPUs are left for another program, on purpose.
_LEAVES = re.compile(r"(?i)vllm|sglang|\bserver?\b|\$\(\( *\$?\{?\w+\}? *- *\d+ *\)\)")
_HEAD = "#!/bin/bash\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:%s\n"

EXAMPLES = (
    bad(
        "eight processes, four GPUs",
        {"job.sbatch": _HEAD % 4 + "srun torchrun --nproc_per_node 8 train.py\n", **_SCRIPT},
        "job.sbatch:4 warning",
    ),
    bad(
        "four of eight stay idle",
        {"job.sbatch": _HEAD % "a100:8" + "N=4\ntorchrun --nproc_per_node $N train.py\n", **_SCRIPT},
        "job.sbatch:5 warning",
    ),
    bad(
        "the GPUs of the one task",
        {"job.sbatch": "srun -N 2 --ntasks-per-node 1 --gpus-per-task=4 deepspeed --num_gpus 8 train.py\n", **_SCRIPT},
        "job.sbatch:1 warning",
    ),
    bad(
        "tasks of Slurm itself",
        {"job.sbatch": "#!/bin/bash\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=4\nsrun python train.py\n",
         **_SCRIPT},
        "job.sbatch:4 warning",
    ),
    bad(
        "the GPUs of a job of one node",
        {"job.sbatch": "#!/bin/bash\n#SBATCH -N 1\n#SBATCH -G 4\ntorchrun --nproc_per_node 8 train.py\n", **_SCRIPT},
        "job.sbatch:4 warning",
    ),
    bad(
        "the launcher is in the script that srun calls",
        {
            "job.sbatch": _HEAD % 4 + "srun bash node.sh\n",
            "node.sh": "torchrun --nproc_per_node 8 train.py\n",
            **_SCRIPT,
        },
        "job.sbatch:4 warning",
    ),
    good(
        "one GPU is left for another program",
        {"job.sbatch": _HEAD % 8 + "N=8\nN=$((N - 1))\ntorchrun --nproc_per_node $N train.py\n", **_SCRIPT},
    ),
    good(
        "the GPUs of several nodes together",
        {"job.sbatch": "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gpus=4\nsrun torchrun --nnodes 2 --nproc_per_node 2 \\\n"
         "  --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 train.py\n", **_SCRIPT},
    ),
    good("the same number", {"job.sbatch": _HEAD % 8 + "srun torchrun --nproc_per_node 8 train.py\n", **_SCRIPT}),
    good(
        "the variable of Slurm",
        {"job.sbatch": _HEAD % 8 + "srun torchrun --nproc_per_node $SLURM_GPUS_ON_NODE train.py\n", **_SCRIPT},
    ),
    good(
        "two launches share the GPUs",
        {
            "job.sbatch": _HEAD % 8 + "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 4 train.py &\n"
            "CUDA_VISIBLE_DEVICES=4,5,6,7 torchrun --nproc_per_node 4 --master_port 29501 train.py\nwait\n",
            **_SCRIPT,
        },
    ),
    good(
        "one process, and a number that only a default says",
        {
            "job.sbatch": _HEAD % 4 + "srun torchrun --nproc_per_node $N train.py\n",
            "one.sbatch": _HEAD % 4 + "srun python train.py\n",
            **_SCRIPT,
        },
    ),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Processes of a node beside its GPUs."""
    del context
    launches = [c for c in started_by(doc) if c.launcher in (*PER_NODE, "srun")]
    for command in launches:
        gpus, count = gpus_per_node(command), stated_processes(command)
        if not gpus.is_known or count is None or count in (1, gpus.get()) or VISIBLE in command.env or not gpus.get():
            continue
        more = count > gpus.get()
        if not more and (len(launches) > 1 or command.launcher == "srun" or _LEAVES.search(doc.source.text)):
            continue
        effect = "the last ones have no device" if more else f"{gpus.get() - count} of them stay idle"
        yield META.finding(
            place_in_text(command),
            f"{counted(count, 'process')} on a node for {counted(gpus.get(), 'GPU')} of Slurm: {effect}",
            hint="Make both numbers agree",
            related=(
                *gpus.origins,
                *place_in_script(command),
                *command.processes_per_node.origins,
            ),
            severity=Severity.INFO if doc.in_docs else Severity.WARNING,
            facts={"processes": count, "gpus": gpus.get()},
        )
