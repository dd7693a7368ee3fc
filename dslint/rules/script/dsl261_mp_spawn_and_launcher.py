"""**What.** A script that a launcher starts on several processes starts processes for the GPUs itself, with
`torch.multiprocessing.spawn` or `notebook_launcher`.

**Why it hurts.** Each of the N processes of torchrun starts N more: N x N processes on N GPUs. All groups of workers
meet at the same port: the ranks of different groups mix, or the second group stops with `EADDRINUSE`, and every GPU
holds the model several times.

**Fix.** One of the two: start the script with plain `python`, or drop the spawn and read `LOCAL_RANK`.

**When it stays quiet.** When no launch command of the project starts the script on several processes; when the call
stands under a test (`if "LOCAL_RANK" not in os.environ`, `if args.launcher == "spawn"`), or in a function that is not
called at the top; `nprocs=1`; XLA's `spawn`.

**Evidence.** Two processes under torchrun, torch 2.13 with gloo, each of which spawns two workers: four workers run,
and with a port of their own all four end with `DistNetworkError`, since below torchrun no worker opens a store itself
(so does a single process of torchrun). Started by plain `python`, two workers form one group.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.context import Context
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL261",
    name="mp-spawn-and-launcher",
    kind="script",
    severity=Severity.WARNING,
    summary="Each process of the launcher starts one process a GPU again",
    markers=(r"spawn|start_processes|notebook_launcher", r"spawn\(|start_processes\(|notebook_launcher\("),
    references=("https://pytorch.org/docs/stable/multiprocessing.html#torch.multiprocessing.spawn.spawn",),
    depends_on_run=True,
)

_SCRIPT = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def main():
    world_size = torch.cuda.device_count()
    mp.spawn(worker, args=(world_size,), nprocs=world_size)


if __name__ == "__main__":
    main()
"""
_RUN = "torchrun --nproc_per_node 8 train.py\n"

EXAMPLES = (
    bad("torchrun and spawn", {"train.py": _SCRIPT, "run.sh": _RUN}, at="train.py:16 warning"),
    bad(
        "the deepspeed launcher and spawn",
        {"train.py": _SCRIPT, "run.sh": "deepspeed --num_gpus 4 train.py\n"},
        at="train.py:16",
    ),
    good("python and spawn", {"train.py": _SCRIPT, "run.sh": "python train.py\n"}),
    good("no command", {"train.py": _SCRIPT}),
    good("torchrun for one process a machine", {"train.py": _SCRIPT, "run.sh": _RUN.replace("8", "1")}),
    good(
        "only without a launcher",
        {
            "train.py": _SCRIPT.replace("    mp.spawn", "    if 'LOCAL_RANK' not in os.environ:\n        mp.spawn"),
            "run.sh": _RUN,
        },
    ),
    good(
        "another process for another thing",
        {"train.py": _SCRIPT.replace("nprocs=world_size", "nprocs=1"), "run.sh": _RUN},
    ),
)

_SPAWN = frozenset(
    {
        *("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn", "torch.multiprocessing.start_processes"),
        *("accelerate.notebook_launcher", "accelerate.launchers.notebook_launcher"),
    }
)
_LAUNCHERS = frozenset({"torchrun", "deepspeed", "accelerate", "srun", "mpirun"})


def applies(_: str, context: Context) -> bool:
    """Only a script that is started on several processes can start too many."""
    return context.processes_per_node.get_or(0) > 1 and context.launcher.get_or("") in _LAUNCHERS


def precheck(tree: ast.Module) -> bool:
    """Some call may start processes."""
    names = {"spawn", "start_processes", "notebook_launcher"}
    return any(call_name(call) in names for call in flat(tree).nodes(ast.Call))


class Check(ScriptCheck):
    """Looks at the calls that start one process a GPU."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire where every process of the launcher comes to the call."""
        if self.ctx.qualified_name(node.func) not in _SPAWN or not applies("", self.ctx.run):
            return
        is_notebook = (self.ctx.qualified_name(node.func) or "").endswith("notebook_launcher")
        count = self.ctx.argument(node, "num_processes" if is_notebook else "nprocs", 2)
        number = self.ctx.constants.likely(count).get_or(None)
        if count is None or number == 1 or not self.ctx.startup.runs_always(node):
            return
        processes = self.ctx.run.processes_per_node
        launcher = self.ctx.run.launcher.get()
        self.report(
            node,
            f"{launcher} starts {processes.get()} processes of this script on a machine, and each of them starts"
            f" `{self.ctx.text(count)}` more: the groups meet at one port, and every GPU holds the model several times",
            hint="Start the script with `python`, or drop the spawn and read `LOCAL_RANK`",
            related=tuple(o.labelled("the processes are started here") for o in processes.origins),
            facts={"processes": processes.get(), "count": number if isinstance(number, int) else None},
        )
