"""**What.** `python train.py` starts a script whose main path calls `init_process_group` without rank and size.

**Why it hurts.** `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` are set by a launcher. Without one:
`ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not
set`.

**Fix.** `torchrun --nproc_per_node 8 train.py`; with one GPU `torchrun --standalone`.

**When it stays quiet.** When the call is under a condition, a loop, a `try` or an early return; when it says rank
and size; when the script sets the variables, starts processes itself (`mp.spawn`) or uses a library that asks MPI or
Slurm (DeepSpeed); under `srun` and `mpirun`; and when the launch file sets `RANK` or sources another file.

**Evidence.** torch 2.13: the message, observed with a real `python` process.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL444",
    name="python-direct-distributed",
    kind="plan",
    severity=Severity.ERROR,
    summary="Plain `python` starts a script that needs the variables of a launcher",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    depends_on_run=True,
    needs=("group",),
)

_SCRIPT = """\
import torch
import torch.distributed as dist


def setup():
    dist.init_process_group("nccl")


def main():
    setup()
    print(dist.get_rank())


if __name__ == "__main__":
    main()
"""
_RUN = "python train.py --lr 1\n"

_OPTION = """\
import argparse

import torch.distributed as dist


def setup(opt):
    if opt.local_rank < 0:
        return 1
    dist.init_process_group("nccl")
    return dist.get_world_size()


parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--local-rank", type=int, default=-1)
print(setup(parser.parse_args()))
"""

EXAMPLES = (
    bad("no launcher", {"run.sh": _RUN, "train.py": _SCRIPT}, "run.sh:1 error"),
    bad("in documentation", {"README.md": f"```bash\n{_RUN}```\n", "train.py": _SCRIPT}, "README.md:2 warning"),
    good("torchrun", {"run.sh": _RUN.replace("python", "torchrun --nproc_per_node 8"), "train.py": _SCRIPT}),
    good("only where it is wanted", {
        "run.sh": _RUN,
        "train.py": _SCRIPT.replace("    setup()", '    if "RANK" in os.environ:\n        setup()').replace(
            "import torch\n", "import os\n\nimport torch\n", 1),
    }),
    good("only where a launcher passes a local rank", {
        "run.sh": _RUN,
        "train.py": _OPTION,
    }),
    good("one process says that it is one", {
        "run.sh": _RUN,
        "train.py": _SCRIPT.replace('"nccl"', '"nccl", init_method="tcp://127.0.0.1:29500", rank=0, world_size=1'),
    }),
    good("the script sets the defaults", {
        "run.sh": _RUN,
        "train.py": _SCRIPT.replace("import torch\n", "import os\n\nimport torch\n", 1).replace(
            "    dist.init", '    os.environ.setdefault("RANK", "0")\n    dist.init'),
    }),
    good("the script starts the processes", {
        "run.sh": _RUN,
        "train.py": _SCRIPT.replace("    main()", "    torch.multiprocessing.spawn(main, nprocs=8)"),
    }),
    good("DeepSpeed asks MPI", {
        "run.sh": _RUN, "train.py": _SCRIPT.replace("import torch\n", "import deepspeed\nimport torch\n", 1).replace(
            "dist.init_process_group", "deepspeed.init_distributed"),
    }),
    good("the launch file sets the variables", {
        "run.sh": "export RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29501\n" + _RUN, "train.py": _SCRIPT,
    }),
    good("Slurm starts it", {"run.sh": "srun -n 8 " + _RUN, "train.py": _SCRIPT}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Scripts of `python` that join a group."""
    command = plan.command
    if plan.group is None or any(not command.variable(name).is_absent for name in ("RANK", "WORLD_SIZE")):
        return
    yield META.finding(
        (command.script or command.words[0]).location,
        "`python` sets no `RANK`, `WORLD_SIZE` or `MASTER_ADDR`, but the script joins a process group: it stops",
        hint="Start it with torchrun",
        related=(plan.group.labelled("joins the group"),),
        severity=Severity.WARNING if command.in_docs else None,
    )
