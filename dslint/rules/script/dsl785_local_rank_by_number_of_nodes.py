"""The local rank is the rank modulo the number of nodes, where it should be modulo the processes of a node.

**What.** `rank % int(os.environ["SLURM_JOB_NUM_NODES"])` (also `SLURM_NNODES`, `GROUP_WORLD_SIZE`), through variables,
fields and functions, comes to `torch.cuda.set_device`, `torch.device("cuda", n)` or `device_ids=`.

**Why it hurts.** These variables say how many machines the job has. With 2 machines of 4 tasks each all ranks of a
machine take GPU 0 or 1: NCCL refuses two ranks on one device (`Duplicate GPU detected`), or the GPUs run out of memory,
and GPUs 2 and 3 are never used. It goes well only where both numbers are equal.

**Fix.** `SLURM_LOCALID`, which is the local rank; or `SLURM_NTASKS_PER_NODE`, `LOCAL_WORLD_SIZE` or
`torch.cuda.device_count()` in place of the number of nodes.

**When it stays quiet.** When the number of nodes only divides something (`world_size // nodes`), and when what comes
out is no device.

**Evidence.** Slurm's manual of `sbatch` and `srun` (output environment variables).
https://github.com/tunib-ai/oslo/pull/150
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import DEVICE_TAGS, choices
from dslint.rules.ranks.physical import number_behind, taken_from
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL785",
    name="local-rank-by-number-of-nodes",
    kind="script",
    severity=Severity.WARNING,
    summary="a device gets the rank modulo the number of nodes: ranks of one machine share GPUs",
    markers=(r"SLURM_(?:JOB_NUM_NODES|NNODES)|GROUP_WORLD_SIZE", r"%"),
    references=(
        "https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES",
        "https://github.com/tunib-ai/oslo/pull/150",
    ),
    no_experiment="it takes two machines with several GPUs each; Slurm's manual says what the variables are",
)
_NODES = frozenset({"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "GROUP_WORLD_SIZE"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each modulo by the number of nodes that chooses a device."""
    told: set[int] = set()
    for found in run.happenings(*DEVICE_TAGS):
        event = found.event
        for _, node in choices(event):
            if node is event.node:
                continue
            for module, top in number_behind(run.derived, event.module, node):
                if not isinstance(top, ast.BinOp) or not isinstance(top.op, ast.Mod) or id(top) in told:
                    continue
                read = taken_from(run.derived, module, top.right, _NODES)
                if read is None:
                    continue
                told.add(id(top))
                yield run.finding(
                    META,
                    module,
                    top,
                    "this is a number of machines: the rank modulo it is no local rank, and ranks share GPUs",
                    hint="Take `SLURM_LOCALID`, or the rank modulo `SLURM_NTASKS_PER_NODE`",
                    related=(
                        run.location(*read, "how many machines the job has"),
                        run.location(event.module, event.node, "chooses a device by it"),
                    ),
                )


_SCRIPT = """\
import os

import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
world_size = int(os.environ["SLURM_NTASKS"])
dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=world_size)
%s
torch.cuda.set_device(local_rank)
x = torch.ones(1, device="cuda")
dist.all_reduce(x)
"""
_FIELDS = """\
import os

import torch
import torch.distributed as dist


def local(rank):
    nodes = int(os.environ.get("SLURM_NNODES", 1))
    return rank % nodes


class World:
    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.local_rank = local(self.rank)


def main():
    world = World()
    dist.init_process_group("nccl")
    device = torch.device("cuda", world.local_rank)
    x = torch.ones(1, device=device)
    dist.all_reduce(x)


main()
"""

EXAMPLES = (
    bad("the number of nodes for the tasks of one", {
        "train.py": _SCRIPT % 'local_rank = rank % int(os.environ["SLURM_JOB_NUM_NODES"])',
    }, "train.py:9 warning"),
    bad("through a variable", {
        "train.py": _SCRIPT % 'local_size = int(os.getenv("SLURM_NNODES"))\nlocal_rank = rank % local_size',
    }, "train.py:10 warning"),
    bad("a function and a field", {"train.py": _FIELDS}, "train.py:9 warning"),
    good("the tasks of a node", {
        "train.py": _SCRIPT % 'local_rank = rank % int(os.environ["SLURM_NTASKS_PER_NODE"])',
    }),
    good("the local rank", {"train.py": _SCRIPT % 'local_rank = int(os.environ["SLURM_LOCALID"])'}),
    good("worked out from the number of nodes", {
        "train.py": _SCRIPT % 'local_rank = rank % (world_size // int(os.environ["SLURM_NNODES"]))',
    }),
    good("the devices that are there", {"train.py": _SCRIPT % "local_rank = rank % torch.cuda.device_count()"}),
    good("the place of a machine, which chooses no device", {
        "train.py": _SCRIPT % 'local_rank = int(os.environ["SLURM_LOCALID"])\n'
                              'print(rank % int(os.environ["SLURM_NNODES"]))',
    }),
)  # fmt: skip
