"""Scripts of examples that deal out data sets by samplers, classes and cuts, and that form groups by local ranks."""

from __future__ import annotations

RANK_CUT = """\
import os

import torch
import torch.distributed as dist


def place():
    return int(os.environ.get("%s", 0)), int(os.environ.get("WORLD_SIZE", 1))


def main(model, questions, out):
    rank, world = place()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    answers = [model(question) for question in questions[rank::world]]
    torch.save(answers, f"{out}/{rank}_of_{world}.pt")
"""
OWN_SAMPLER = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Strided(Sampler):
    def __init__(self, data, count, rank):
        self.data, self.count, self.rank = data, count, rank

    def __iter__(self):
        return iter(range(self.rank, len(self.data) // self.count * self.count, self.count))


def main(net, optimizer, seed):
    data = TensorDataset(torch.arange(64.0))
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.manual_seed(seed + %s)
    loader = DataLoader(data, sampler=Strided(data, dist.get_world_size(), %s))
    model = DDP(net)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
"""
DOWNLOADED = (
    OWN_SAMPLER.replace("    data = TensorDataset(torch.arange(64.0))\n", "")
    .replace("DataLoader, Sampler, TensorDataset\n", "DataLoader, Sampler\nfrom torchvision.datasets import CIFAR10\n")
    .replace(
        "    loader =",
        "    if local_rank != 0:\n        dist.barrier()\n"
        "    data = CIFAR10('data', download=local_rank == 0)\n"
        "    if local_rank == 0:\n        dist.barrier()\n    loader =",
    )
)
# A class of the project deals out, and the training loop goes through its object.
OWN_SHARDS = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Shards:
    def __init__(self, rows, shard_id, num_shards):
        size = len(rows) // num_shards
        self.rows = rows[shard_id * size : (shard_id + 1) * size]

    def __iter__(self):
        for row in self.rows:
            yield row


def main(net, optimizer, rows):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DDP(net.cuda())
    for row in Shards(rows, %s, dist.get_world_size()):
        model(row.cuda()).mean().backward()
        optimizer.step()


main(make_net(), make_optimizer(), torch.load("rows.pt"))
"""
GROUP_HEAD = "import os\n\nimport torch\nimport torch.distributed as dist\n\n"
LOCAL_GROUP = (
    GROUP_HEAD
    + """\
local_rank = int(os.environ["LOCAL_RANK"])
world_size = int(os.environ.get("WORLD_SIZE", 1))
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl", rank=%s, world_size=%s)
"""
)
PARSED_GROUP = """\
import argparse
import os

import torch.distributed as dist


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    return parser.parse_args()


def main():
    args = parse()
%s
    args.world_size = int(os.environ["WORLD_SIZE"])
    if args.local_rank != -1:
        dist.init_process_group(backend="nccl", rank=args.local_rank, world_size=args.world_size)


main()
"""

LOCAL_SAMPLER = """\
import os
from torch.utils.data import DistributedSampler


def sampler(data):
    world_size = int(os.environ["WORLD_SIZE"])
    return DistributedSampler(data, num_replicas=world_size, rank=int(os.environ["%s"]))
"""
