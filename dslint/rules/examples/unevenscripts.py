"""Scripts of the examples about loops that ranks run a different number of times."""

from __future__ import annotations

# What the scripts with a DDP model import.
DDP_HEAD = """\
import math
from itertools import islice

import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, Sampler


"""
# Consecutive parts of one length.
FLOORED = """\
import torch.distributed as dist


def infer(model, samples):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    share = len(samples) // world_size
    for sample in samples[rank * share : (rank + 1) * share]:
        dist.all_reduce(model(sample))
"""
# A sampler that fills the last part.
SAMPLER_THAT_ROUNDS = """\
class Dealt(Sampler):
    def __init__(self, data, rank, world_size):
        self.count = math.ceil(len(data) / world_size)
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        return iter(range(self.rank, self.count * self.world_size, self.world_size))


def train(net, optimizer, data, rank, world_size):
    model = DistributedDataParallel(net)
    for batch in DataLoader(data, sampler=Dealt(data, rank, world_size)):
        model(batch).mean().backward()
        optimizer.step()
"""
# `Join` around the loop.
JOINED = """\
def train(net, optimizer, items):
    model = DistributedDataParallel(net)
    with Join([model]):
        for item in items[dist.get_rank() :: dist.get_world_size()]:
            model(item).mean().backward()
            optimizer.step()
"""
# Each rank reads its own part of a stream; how it trains on it follows.
STREAM = """\
import torch.distributed as dist
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
data = load_dataset("json", data_files="*.jsonl", split="train", streaming=True)
data = split_dataset_by_node(data, rank=dist.get_rank(), world_size=dist.get_world_size())


def train(model, loader):
    for batch in loader:
        model(batch).mean().backward()


loader, model = DataLoader(data, batch_size=8), DDP(build())
%s
"""

# The rows of a rank are picked where nothing says so.
OWN_ROWS = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, Subset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def of_part(self, part, parts):
        return [i for i, row in enumerate(self.rows) if row["case"] % parts == part]


def evaluate(model, loader, log_every):
    scores = []
    for step, batch in enumerate(loader):
        score = model(batch)
        dist.all_reduce(score)
        scores.append(score)
        if step % log_every == 0:
            print(step)
    return scores


def main(model, rows):
    dist.init_process_group("nccl")
    data = Rows(rows)
    mine = Subset(data, data.of_part(dist.get_rank(), dist.get_world_size()))
    evaluate(model, DataLoader(mine, 8), 10)
"""
# An object that gives batches of the files of this rank.
READER = """\
from itertools import islice

import torch.distributed as dist


class Reader:
    def __init__(self, files, rank, size):
        count = %s
        self.files = files[rank:count:size]

    def __iter__(self):
        for path in self.files:
            yield load(path)


def march(files):
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    reader = Reader(files, rank, size)
    for batch in reader:
        compute(batch)
        dist.barrier()
"""
# Each rank packs its own items, and all cut their lists to the shortest one.
CUT_TO_SHORTEST = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def fewest(count):
    number = torch.tensor(count, device="cuda")
    dist.all_reduce(number, op=dist.ReduceOp.MIN)
    return number.item()


def pack(items, budget):
    packed, current, used = [], [], 0
    for item in items[dist.get_rank() :: dist.get_world_size()]:
        if current and used + len(item) > budget:
            packed.append(current)
            current, used = [], 0
        current.append(item)
        used += len(item)
    packed.append(current)
    %s


def train(net, optimizer, items):
    model = DDP(net)
    for batch in pack(items, 4096):
        model(batch).mean().backward()
        optimizer.step()
"""
# A model that sums over the ranks while it is trained; each rank evaluates its share.
SUMS_WHILE_TRAINED = """\
import torch
import torch.distributed as dist


class Layer(torch.nn.Module):
    def forward(self, x):
        if self.training:
            dist.all_reduce(x)
        return x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def evaluate(samples):
    net = Net().cuda()
    net.%s
    return [net(sample) for sample in samples[dist.get_rank() :: dist.get_world_size()]]
"""

# A counter of epochs that ends early by what it is told.
STOPPER = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Epochs:
    def __init__(self, limit):
        self.limit, self.epoch, self.bad, self.best = limit, 0, 0, 1e9

    def __iter__(self):
        return self

    def __next__(self):
        if self.epoch == self.limit or self.bad > 3:
            raise StopIteration
        self.epoch += 1
        return self.epoch

    def report(self, score):
        self.bad = 0 if score < self.best else self.bad + 1


def train(net, loader, optimizer, device):
    dist.init_process_group("nccl")
    model, epochs = DistributedDataParallel(net), Epochs(10)
    for epoch in epochs:
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        score = loss.detach()
        dist.all_reduce(score)
        %sepochs.report(score.item())
"""

SENT = """\
import torch
import torch.distributed as dist


def send(sizes, group):
    holder = [sizes]
    dist.broadcast_object_list(holder, src=0, group=group)
    return torch.load(holder[0]) if isinstance(holder[0], str) else holder[0]


def tensors(items, group):
    is_source = dist.get_rank(group) == 0
    if is_source:
        sizes = [item.size() for item in items]
        send(sizes, group)
    else:
        sizes = torch.load(send(None, group))
    for number, size in enumerate(sizes):
        tensor = items[number] if is_source else torch.zeros(size)
        dist.broadcast(tensor, src=0, group=group)
"""

# So many draws for each slot: the parts are equal.
DRAWN = """\
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Visits(IterableDataset):
    def __init__(self, rows, rank, world, rounds=40):
        self.rows, self.rank, self.world, self.rounds = rows, rank, world, rounds

    def __iter__(self):
        rng = np.random.default_rng(0)
        order = rng.choice(len(self.rows), %s)
        for row in order[self.rank :: self.world]:
            yield torch.from_numpy(self.rows[row])


def main(net, rows, optimizer):
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(net.cuda())
    for batch in DataLoader(Visits(rows, rank, world), batch_size=8):
        model(batch.cuda()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
