"""**What.** A script that a launcher starts on several processes starts processes for the GPUs itself, with
`torch.multiprocessing.spawn` or `notebook_launcher`.

**Why it hurts.** Each of the N processes of torchrun starts N more: N x N processes on N GPUs. All groups of workers
meet at the same port: the ranks of different groups mix, or the second group stops with `EADDRINUSE`, and every GPU
holds the model several times.

**Fix.** One of the two: start the script with plain `python`, or drop the spawn and read `LOCAL_RANK`.

**When it stays quiet.** When no launch command of the project starts the script on several processes; when the call
is under a test (`if "LOCAL_RANK" not in os.environ`, `if args.launcher == "spawn"`), or in a function that is not
called at the top; `nprocs=1`; XLA's `spawn`.

**Evidence.** Two processes under torchrun, torch 2.13 with gloo, each of which spawns two workers: four workers run,
and with a port of their own all four end with `DistNetworkError`, since below torchrun no worker opens a store itself
(so does a single process of torchrun). Started by plain `python`, two workers form one group.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.python.events import Event, Loop
from dslint.python.queries.order import deciding
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.ranks.groups import argument_text
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL261",
    name="mp-spawn-and-launcher",
    kind="script",
    severity=Severity.WARNING,
    summary="Each process of the launcher starts one process a GPU again",
    markers=(r"torch|accelerate",),
    references=("https://pytorch.org/docs/stable/multiprocessing.html#torch.multiprocessing.spawn.spawn",),
    depends_on_run=True,
)

_LAUNCHERS = frozenset({"torchrun", "deepspeed", "accelerate", "srun", "mpirun"})


def applies(_: str, context: Context) -> bool:
    """Only a script that is started on several processes can start too many."""
    return context.processes_per_node.get_or(0) > 1 and context.launcher.get_or("") in _LAUNCHERS


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where every process of the launcher comes to a call that starts one process a GPU."""
    if not applies("", run.context):
        return
    for found in run.happenings("spawns"):
        event, entry = found.event, found.entry
        name = str(row_of(run, event).get("processes", ""))
        count = event.arguments.get(name)
        if entry.kind != "script" or event.may or count is None or count.constants in ((1,), (None,)):
            continue
        ways = deciding(entry.tree, event)
        if event.lanes == run.machine.worlds.full and any(not way.tests and not _in_loop(way.way) for way in ways):
            yield _finding(run, event, name)


def _in_loop(way: tuple[object, ...]) -> bool:
    return any(isinstance(node, Loop) and not node.at_least_once for node in way)


def _finding(run: RunQuery, event: Event, name: str) -> Finding:
    text, _ = argument_text(run, event, name)
    known = event.arguments[name].constants
    number = known[0] if known is not None and len(known) == 1 else None
    processes = run.context.processes_per_node
    return run.finding(
        META,
        event.module,
        event.node,
        f"{run.context.launcher.get()} starts {processes.get()} processes of this script, and each starts"
        f" `{text}` more:"
        " the groups collide at one port",
        hint="Start the script with `python`, or drop the spawn and read `LOCAL_RANK`",
        related=tuple(o.labelled("the processes are started here") for o in processes.origins),
        facts={"processes": processes.get(), "count": number if isinstance(number, int) else None},
    )


_SCRIPT = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ.setdefault("MASTER_PORT", "12355")
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
    bad(
        "a helper of another file, and keywords in a dictionary",
        {
            "train.py": "import torch\nimport torch.distributed as dist\nfrom jobs import start\n\n\n"
            "def worker(rank):\n    dist.init_process_group('nccl')\n\n\n"
            "options = {'nprocs': torch.cuda.device_count()}\nstart(worker, **options)\n",
            "jobs.py": "from torch.multiprocessing import spawn as go\n\n\ndef start(function, **options):\n"
            "    go(function, **options)\n",
            "run.sh": _RUN,
        },
        at="jobs.py:5 warning",
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
