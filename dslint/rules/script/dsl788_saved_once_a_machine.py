"""On each machine a process with local rank 0 writes the same file.

**What.** A run on several machines saves under `if local_rank == 0:`. That holds on one process of each machine, and
the path is the same for all of them.

**Why it hurts.** In storage that the machines share, as most clusters have it, as many processes as there are machines
write one file at the same time: a checkpoint that is half of one and half of another, or a `FileNotFoundError` where
one renames or removes what the other still needs. A run on one machine, on which the script was tried, has one writer.

**Fix.** Ask for the rank in the job: `if dist.get_rank() == 0:`. Where each machine has a disk of its own, put its
number into the path.

**When it stays quiet.** Where no launch command states several machines; with the number or the name of the machine in
the path; where the rank is asked, too; for paths that are not certainly the same; for writes of small files that are
the same everywhere.

**Evidence.** Two processes with local rank 0 and one path: what is read back is not what either of them has saved, or
one save fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.ranks.touchedpaths import is_shared_path
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL788",
    name="saved-once-a-machine",
    kind="script",
    severity=Severity.WARNING,
    summary="on each machine a process with local rank 0 writes the same file",
    markers=(r"local_?rank|LOCAL_RANK", r"save"),
    references=(
        "https://github.com/cybertronai/imagenet18_old/issues/16",
        "https://pytorch.org/docs/stable/elastic/run.html#definitions",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each save of a run on several machines by which one process of each machine writes one path."""
    if run.context.nodes.get_or(1) < 2:
        return
    writers = sum(1 << at for at, lane in enumerate(run.machine.worlds.lanes) if lane[1] == 0)
    told: set[int] = set()
    for found in run.happenings("saves"):
        event, name = found.event, str(row_of(run, found.event).get("path", ""))
        is_ours = found.entry.kind == "script" and event.lanes == writers and event.lanes != run.machine.worlds.main
        if not is_ours or event.open or id(event.node) in told or name not in event.snapshot:
            continue
        if event.api.endswith(".save_pretrained") and "trainer-save" not in event.tags:
            continue  # tokenizers and configurations are small, and the same everywhere
        if not is_shared_path(run, event, name, frozenset()):
            continue
        told.add(id(event.node))
        yield run.finding(
            META,
            event.module,
            event.node,
            "local rank 0 of every machine writes this file: in shared storage several processes write it at once",
            hint="Ask for the rank in the job: `if dist.get_rank() == 0:`",
            related=tuple(run.location(call.module, call.node, "called from here") for call in found.calls[:-3:-1]),
            assumptions=(assumed("shared-files"),),
        )


_TRAIN = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(state, folder):
    torch.save(state, os.path.join(folder, %s))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-dir", default="runs")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DDP(torch.nn.Linear(8, 1).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 8).cuda()).mean().backward()
        optimizer.step()
        if %s:
            save(model.module.state_dict(), args.save_dir)


if __name__ == "__main__":
    main()
"""
_LAUNCH = "torchrun --nnodes %s --node_rank $1 --nproc_per_node 8 --master_addr $2 --master_port 6006 train.py%s\n"
_LOCAL, _NAME = "local_rank == 0", '"last.pt"'


def _files(test: str = _LOCAL, *, name: str = _NAME, nodes: int = 4, options: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % (name, test), "launch.sh": _LAUNCH % (nodes, options)}


EXAMPLES = (
    bad("one writer on each of four machines", _files(), "train.py:10 warning"),
    bad("the folder comes from the command", _files(options=" --save-dir /efs/runs"), "train.py:10"),
    bad("the local rank is asked otherwise", _files('not dist.get_node_local_rank()'), "train.py:10"),
    good("one machine", _files(nodes=1)),
    good("one process of the job", _files("dist.get_rank() == 0")),
    good("local rank 0 of the first machine", _files("local_rank == 0 and dist.get_rank() == 0")),
    good("the number of the machine is in the name",
         _files(name="""f"last_{os.environ['GROUP_RANK']}.pt\"""")),
    good("the name of the machine is in the name", _files(name='f"last_{os.uname().nodename}.pt"')),
)  # fmt: skip
