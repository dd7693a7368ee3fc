"""Examples of DSL615: what some ranks make and all use."""

from __future__ import annotations

from dslint.rules.base import Example, bad, good

HEAD = """\
import torch
import torch.distributed as dist
import wandb
from torch.utils.tensorboard import SummaryWriter


"""

WRITER = (
    HEAD
    + """\
def main(model, loader):
    dist.init_process_group("nccl")
    writer = SummaryWriter("logs") if dist.get_rank() == 0 else None
    for step, batch in enumerate(loader):
        loss = model(batch).mean().detach()
        dist.all_reduce(loss)
        %s
"""
)

RUN = """\
import torch.distributed as dist
import wandb


class Report:
    def __init__(self, project):
        if dist.get_rank() == 0:
            wandb.init(project=project%s)

    def send(self, values):
        %s
"""

USES = """\
import torch.distributed as dist

from report import Report

dist.init_process_group("nccl")
report = Report("x")
for step in range(100):
    report.send({"step": step})
dist.barrier()
"""

# The first turn of a loop makes it, and the share of a rank might be empty.
FILLED = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def extract(model, data):
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    rows, names = None, None
    for batch, index in loader:
        found = model(batch.cuda())
        if rows is None:
            rows = torch.zeros(len(data), found.shape[-1], device="cuda")
            names = torch.full((len(data),), -1, device="cuda")
        everything = [torch.empty_like(found) for _ in range(dist.get_world_size())]
        dist.all_gather(everything, found)
        rows.index_copy_(0, index.cuda(), torch.cat(everything))
    print(tuple(rows.shape), tuple(names.shape))
    return rows


def main(model, data):
    dist.init_process_group("nccl")
    torch.save(extract(model, data), f"rows_{dist.get_rank()}.pt")
"""

SCATTERED = """\
import torch
from accelerate import Accelerator


def main(reward, loader):
    accelerator = Accelerator()
    loader = accelerator.prepare(loader)
    for batch in loader:
        parts = accelerator.gather(batch)
        if accelerator.is_main_process:
            scores = list(reward(parts).chunk(accelerator.num_processes))
        else:
            scores = None
        if torch.distributed.is_initialized():
            mine = torch.empty(len(batch), device=accelerator.device)
            torch.distributed.scatter(mine, scores)
        else:
            mine = scores[0].clone()
        print(mine.mean().item())
"""

MERGED = """\
import pickle

import torch.distributed as dist


def merged(part, folder):
    with open(f"{folder}/part_{dist.get_rank()}.pkl", "wb") as file:
        pickle.dump(part, file)
    dist.barrier()
    if dist.get_rank() != 0:
        return None
    parts = []
    for rank in range(dist.get_world_size()):
        with open(f"{folder}/part_{rank}.pkl", "rb") as file:
            parts += pickle.load(file)
    return sorted(parts)


def evaluate(model, loader, folder):
    dist.init_process_group("gloo")
    results = merged([model(batch).item() for batch in loader], folder)
    %s
    dist.barrier()


def gathered(rows):
    parts = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(rows, parts, dst=0)
    %s
"""

GROUPED = """\
import multiprocessing
import time

import torch.distributed as dist


def prepare(config, load):
    dist.init_process_group("gloo")
    group, groups = dist.new_subgroups()
    process = None
    if group.rank() == 0:
        process = multiprocessing.Process(target=load, args=(config,))
        process.start()
    while True:
        status = [None]
        %sstatus = [process.exitcode]
        dist.broadcast_object_list(status, src=0)
        if status[0] is not None:
            break
        time.sleep(10)
"""

MORE: tuple[Example, ...] = (
    good("a run of one process uses it", {"train.py": SCATTERED}),
    good("the first turn of a loop makes it", {"train.py": FILLED}),
    bad("a process of the first rank of a group", {"prepare.py": GROUPED % ""}, "prepare.py:16 error"),
    good(
        "the rank in the group is asked again",
        {"prepare.py": GROUPED % "if group.rank() == 0:\n            "},
    ),
    bad(
        "the length of merged results",
        {"eval.py": MERGED % ("print(len(results))", "return parts")},
        "eval.py:22 error",
    ),
    bad(
        "a loop over them",
        {"eval.py": MERGED % ("for result in results:\n        print(result)", "return parts")},
        "eval.py:22 error",
    ),
    bad("an item of what rank 0 has gathered", {"eval.py": MERGED % ("pass", "return parts[0]")}, "eval.py:29 error"),
    bad(
        "a comprehension",
        {"eval.py": MERGED % ("pass", "return [row for part in parts for row in part]")},
        "eval.py:29 error",
    ),
    good(
        "rank 0 alone uses them",
        {
            "eval.py": MERGED
            % ("if dist.get_rank() == 0:\n        print(len(results))", "return parts if parts is None else parts[0]")
        },
    ),
    good(
        "the results are asked",
        {
            "eval.py": MERGED
            % (
                "if results:\n        print(results[0], len(results))",
                "if parts is not None:\n        return len(parts)",
            )
        },
    ),
    bad(
        "a writer of rank 0",
        {"train.py": WRITER % 'writer.add_scalar("loss", loss.item(), step)'},
        at="train.py:13 error",
    ),
    bad(
        "a run that rank 0 has started in another file",
        {"report.py": RUN % ("", "wandb.log(values)"), "train.py": USES},
        at="report.py:11 error",
    ),
    good(
        "the writer is asked",
        {"train.py": WRITER % 'if writer is not None:\n            writer.add_scalar("loss", loss.item(), step)'},
    ),
    good(
        "the rank is asked again",
        {"train.py": WRITER % 'if dist.get_rank() == 0:\n            writer.add_scalar("loss", loss.item(), step)'},
    ),
    good(
        "the run is asked",
        {"report.py": RUN % ("", "if wandb.run is not None:\n            wandb.log(values)"), "train.py": USES},
    ),
    good(
        "the others have a run that is disabled",
        {
            "report.py": RUN % (")\n        else:\n            wandb.init(mode='disabled'", "wandb.log(values)"),
            "train.py": USES,
        },
    ),
)
