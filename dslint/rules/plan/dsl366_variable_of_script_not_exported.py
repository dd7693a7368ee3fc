"""**What.** A launch file sets a variable on a line of its own without `export`, uses it nowhere itself, and the
script that it starts reads it from the environment: `NPROC_PER_NODE=8` in front of `python cli.py`, whose
`os.environ.get("NPROC_PER_NODE")` decides how many processes it starts. Or it is exported, and the script runs on
another machine (`ssh`), in a container or pod, under `sudo` or `env -i`.

**Why it hurts.** The variable stays in the shell. The script takes its default: one process instead of eight, rank 0
on every node, another project of the logger; or it stops with a `KeyError`.

**Fix.** `export` it, or put it in front of the command. Where a job has `#SBATCH --export=NONE`, `srun --export=ALL` or
`unset SLURM_EXPORT_ENV`: otherwise its steps get no variables of the job script.

**When it stays quiet.** When the file exports it before or after, uses it (`$NAME`), or switches `set -a` on; in
documentation; for variables that every process reads, which are DSL334.

**Evidence.** bash 5.2: a variable that is not exported is not in the environment of a command.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL366",
    name="variable-of-script-not-exported",
    kind="plan",
    severity=Severity.WARNING,
    summary="A variable that the script reads is set in the shell and does not arrive",
    depends_on_run=True,
    no_experiment="what bash passes on is judged by bash itself, in the tests of the shell reader",
    references=("https://www.gnu.org/software/bash/manual/html_node/Environment.html",),
    needs=("unexported",),
)

_CLI = """\
import os
import subprocess
import sys

count = os.environ.get("NPROC_PER_NODE")
command = [sys.executable, "worker.py"]
if count is not None:
    command = ["torchrun", "--nproc_per_node", count, "worker.py"]
sys.exit(subprocess.call(command))
"""
_TRAIN = """\
import os

import torch.distributed as dist

rank = int(os.environ.get("NODE_RANK", "0")) * 8 + int(os.environ["LOCAL_RANK"])
run = os.environ["WANDB_PROJECT"]
"""
_OF_THE_JOB = "import os\n\nimport torch\n\nworld_size = int(os.getenv('WORLD_SIZE', '1'))\nrank = os.getenv('RANK')\n"
_PROJECT = "export WANDB_PROJECT=speech\n"
_GPUS = "GPUS=8\nNPROC_PER_NODE=$GPUS\n"

EXAMPLES = (
    bad("a front end that starts the processes", {
        "run.sh": _GPUS + "python cli.py --lr 1\n", "cli.py": _CLI,
    }, "run.sh:2 warning"),
    bad("the rank of the node", {
        "run.sh": "NODE_RANK=1\n\ntorchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }, "run.sh:1 warning"),
    bad("a number", {"run.sh": "NPROC_PER_NODE=4; python cli.py\n", "cli.py": _CLI}, "run.sh:1 warning"),
    bad("the project of the logger", {
        "run.sh": "WANDB_PROJECT=speech\ntorchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }, "run.sh:1 warning"),
    good("exported", {"run.sh": _GPUS.replace("NPROC", "export NPROC") + "python cli.py\n", "cli.py": _CLI}),
    good("in front", {"run.sh": "NPROC_PER_NODE=8 python cli.py\n", "cli.py": _CLI}),
    good("exported afterwards", {"run.sh": _GPUS + "export NPROC_PER_NODE\npython cli.py\n", "cli.py": _CLI}),
    good("the file uses it itself", {
        "run.sh": "NODE_RANK=1\ntorchrun --nnodes 2 --node_rank $NODE_RANK --master_addr a train.py\n",
        "train.py": _TRAIN,
    }),
    good("the launcher gives it to each process", {
        "run.sh": "WORLD_SIZE=16\nRANK=0\ndeepspeed --num_gpus 8 train.py\n", "train.py": _OF_THE_JOB,
        "ddp.sh": "WORLD_SIZE=16\npython -m torch.distributed.launch --nproc_per_node 8 train.py\n",
        "acc.sh": "WORLD_SIZE=16\naccelerate launch --multi_gpu --num_processes 8 train.py\n",
    }),
    bad("no launcher gives it", {"run.sh": "WORLD_SIZE=16\npython train.py\n", "train.py": _OF_THE_JOB},
        "run.sh:1 warning"),
    good("nothing is kept back", {
        "job.sh": "#!/bin/bash\n#SBATCH --ntasks=8 --export=NONE\nunset SLURM_EXPORT_ENV\nexport NPROC_PER_NODE=8\n"
        "srun python cli.py\n", "cli.py": _CLI,
    }),
    bad("a step that gets no variables", {
        "job.sh": "#!/bin/bash\n#SBATCH --ntasks=8 --export=NONE\nexport NPROC_PER_NODE=8\nsrun python cli.py\n",
        "cli.py": _CLI,
    }, "job.sh:3 warning"),
    bad("another machine", {
        "run.sh": f"{_PROJECT}ssh node1 torchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }, "run.sh:1 warning"),
    bad("a container", {
        "run.sh": f"{_PROJECT}docker run --gpus all --ipc=host team/train:1 torchrun --nproc_per_node 8 train.py\n",
        "train.py": _TRAIN,
    }, "run.sh:1 warning"),
    bad("another user", {
        "run.sh": f"{_PROJECT}sudo torchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }, "run.sh:1 warning"),
    bad("a pod", {
        "run.sh": f"{_PROJECT}kubectl exec train-0 -- torchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }, "run.sh:1 warning"),
    bad("an empty environment", {
        "run.sh": f"{_PROJECT}env -i PATH=$PATH torchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }, "run.sh:1 warning"),
    good("handed to a container", {
        "run.sh": f"{_PROJECT}docker run --gpus all --ipc=host -e WANDB_PROJECT team/train:1"
                  " torchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }),
    good("handed to another machine", {
        "run.sh": f"{_PROJECT}ssh node1 WANDB_PROJECT=$WANDB_PROJECT torchrun --nproc_per_node 8 train.py\n",
        "train.py": _TRAIN,
    }),
    good("handed to another user", {
        "run.sh": f"{_PROJECT}sudo -E torchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }),
    good("a file of variables", {
        "run.sh": f"{_PROJECT}docker run --gpus all --ipc=host --env-file .env team/train:1"
                  " torchrun --nproc_per_node 8 train.py\n", "train.py": _TRAIN,
    }),
    good("another script", {"run.sh": _GPUS + "python other.py\n", "other.py": "print()\n", "cli.py": _CLI}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Variables that stay in the shell."""
    command = plan.command
    for name, place in plan.unexported:
        said, hint = "is set and not exported", "Write `export` before it"
        if name in command.withheld and command.launcher == "srun":
            said, hint = "is kept back by `srun`, which hands over nothing here", "Let it arrive: `--export=ALL`"
        elif name in command.withheld:
            program = next((g[0].raw for g in reversed(command.wrappers) if g), "the program around")
            said, hint = f"is kept back by `{program}`", f"Pass `{name}` on to the command"
        yield META.finding(
            place,
            f"`{name}` {said}: the script, which reads it, does not see it",
            hint=hint,
            related=(command.location.labelled("this command does not pass it on"),),
            facts={"name": name},
        )
