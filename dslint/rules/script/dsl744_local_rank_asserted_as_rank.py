"""A script stops unless the rank on the machine is the rank in the job.

**What.** `assert args.local_rank == torch.distributed.get_rank()`, or `if local_rank != rank: raise ...`.

**Why it hurts.** On one machine the two are equal. On the second machine the local rank begins at 0 again: all its
processes stop with an `AssertionError` that says nothing, and those of the first machine wait for them.

**Fix.** Delete the line; or compare `rank % torch.cuda.device_count()`.

**When it stays quiet.** For jobs on one machine, processes that the script starts itself or that meet at this machine,
tests, and where it is not certain that one side is the local rank and the other the rank of the job.

**Evidence.** torchrun of torch 2.13 for two machines with a process each (both agents on one host): `LOCAL_RANK` is 0
and `get_rank()` is 1 in the second one, which stops. Read in the code of Point-MAE.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.environment import COLUMNS
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.sureways import is_exit
from dslint.rules.ranks.visible import meets_here
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL744",
    name="local-rank-asserted-as-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="the script stops unless the local rank is the rank of the job: no second machine can run it",
    markers=(
        r"torch|deepspeed|accelerat|lightning",
        r"LOCAL_?RANK|local_?rank|SLURM_LOCALID",
        r"assert\b|raise\b|exit",
    ),
    references=("https://pytorch.org/docs/stable/elastic/run.html#environment-variables",),
    depends_on_run=True,
    no_experiment="DSL271 shows that the two differ on the second machine; an assertion stops what it is false for",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each assertion that is false on a second machine."""
    if run.context.is_one_machine or run.context.is_one_process or run.has("spawns") or meets_here(run):
        return
    for found in run.happenings("compares-ranks"):
        event = found.event
        if _stops(event) and _is_false_somewhere(run, event):
            yield run.finding(
                META,
                event.module,
                event.node,
                f"`{run.text(event.module, event.node, 50)}` is false on every machine after the first: its ranks stop",
                hint="Delete the line, or compare the rank modulo the number of GPUs",
            )


def _is_false_somewhere(run: RunQuery, event: Event) -> bool:
    """Return whether a process of a later machine comes to the comparison."""
    rank, local = COLUMNS["rank"], COLUMNS["local-rank"]
    return any(lane[rank] != lane[local] for at, lane in enumerate(run.machine.worlds.lanes) if event.lanes >> at & 1)


def _stops(event: Event) -> bool:
    """Return whether a program that finds the two different ends there."""
    child, parent = event.node, event.module.parents.get(event.node)
    differs = isinstance(event.node, ast.Compare) and isinstance(event.node.ops[0], ast.NotEq)
    while isinstance(parent, ast.BoolOp | ast.UnaryOp):
        if isinstance(parent, ast.UnaryOp):
            if not isinstance(parent.op, ast.Not):
                return False
            differs = not differs
        child, parent = parent, event.module.parents.get(parent)
    if isinstance(parent, ast.Assert):
        is_choice = isinstance(child, ast.BoolOp) and isinstance(child.op, ast.Or)
        return parent.test is child and not differs and not is_choice
    if isinstance(parent, ast.If) and parent.test is child:
        return any(_ends(statement) for statement in (parent.body if differs else parent.orelse))
    return False


def _ends(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Raise) or (isinstance(statement, ast.Expr) and is_exit(statement.value))


_SCRIPT = """\
import argparse
import os
import sys

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
dist.init_process_group("nccl")
%s
"""
_ASSERT = _SCRIPT % "assert args.local_rank == dist.get_rank()"
_ENV = 'local_rank = int(os.environ["LOCAL_RANK"])\n'
_HELPER = "def same(place):\n    if place.rank != place.local_rank:\n        sys.exit('ranks differ')\n\n\n"
_CLASS = (
    "class Place:\n    def __init__(self):\n        self.rank = dist.get_rank()\n"
    "        self.local_rank = int(os.environ['LOCAL_RANK'])\n\n\nsame(Place())"
)

EXAMPLES = (
    bad("an option of the launcher", {"train.py": _ASSERT}, "train.py:13 warning"),
    bad("the variables", {
        "train.py": _SCRIPT % (_ENV + 'assert int(os.environ["RANK"]) == local_rank, "ranks"'),
    }, "train.py:14"),
    bad("an error", {
        "train.py": _SCRIPT % (_ENV + "if local_rank != dist.get_rank():\n    raise RuntimeError('ranks')"),
    }, "train.py:14"),
    bad("a helper", {"train.py": _SCRIPT % (_HELPER + _CLASS)}, "train.py:14"),
    bad("two machines are started", {
        "train.py": _SCRIPT % (_ENV + "assert local_rank == dist.get_rank()"),
        "run.sh": "torchrun --nnodes 2 --nproc_per_node 8 --node_rank $R --master_addr $M train.py\n",
    }, "train.py:14"),
    good("the GPU of the rank", {
        "train.py": _SCRIPT % "assert args.local_rank == dist.get_rank() % torch.cuda.device_count()",
    }),
    good("what one machine does otherwise", {
        "train.py": _SCRIPT % "if args.local_rank != dist.get_rank():\n    print('a later machine')",
    }),
    good("one machine is started", {
        "train.py": _SCRIPT % (_ENV + "assert local_rank == dist.get_rank()"),
        "run.sh": "torchrun --nproc_per_node 8 train.py --local_rank $LOCAL_RANK\n",
    }),
    good("equal, or a later machine", {
        "train.py": _SCRIPT % (_ENV + 'assert local_rank == dist.get_rank() or os.environ["GROUP_RANK"] != "0"'),
    }),
    good("the same number", {"train.py": _SCRIPT % "assert int(os.environ['RANK']) == dist.get_rank()"}),
)  # fmt: skip
