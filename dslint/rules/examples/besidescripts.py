"""Scripts with a module that is trained beside a wrapped one: the examples of DSL665."""

from __future__ import annotations

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F


class Margin(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim))

    def forward(self, x, labels):
        return F.cross_entropy(F.linear(x, self.weight), labels)


class Plain(nn.Module):
    def forward(self, x, labels):
        return F.cross_entropy(x, labels)
"""
TRAIN = """\
import itertools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from head import Margin, Plain


def main(loader, distributed):
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    net = nn.Linear(8, 8).to(device)
    criterion = Margin(8, 10).to(device)
    %s
    optimizer = torch.optim.SGD(%s, lr=0.1)
    for images, labels in loader:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
DDP = "model = DDP(net, device_ids=[device])"
GROUPS = '[{"params": model.parameters()}, {"params": criterion.parameters(), "weight_decay": 0.0}]'
CHAIN = "itertools.chain(model.parameters(), criterion.parameters())"
SUM = "list(model.parameters()) + list(criterion.parameters())"
GAN = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, rank):
        self.gen = DistributedDataParallel(nn.Linear(8, 8).to(rank), device_ids=[rank])
        self.judge = %s
        self.opt_gen = torch.optim.Adam(self.gen.parameters())
        self.opt_judge = torch.optim.Adam(self.judge.parameters())

    def fit(self, loader):
        for batch in loader:
            fake = self.gen(batch)
            self.judge(fake.detach()).mean().backward()
            self.opt_judge.step()
            (-self.judge(fake).mean()).backward()
            self.opt_gen.step()


def main(rank, loader):
    Trainer(rank).fit(loader)
"""
ADAPTER = """\
import torch
from accelerate import Accelerator
from torch import nn


def main(unet_dim, loader):
    accelerator = Accelerator()
    unet = nn.Linear(unet_dim, unet_dim)
    project = nn.Sequential(nn.Linear(8, unet_dim), nn.LayerNorm(unet_dim)).to(accelerator.device)
    optimizer = torch.optim.AdamW(list(unet.parameters()) + list(project.parameters()))
    %s = accelerator.prepare(%s)
    for batch in loader:
        loss = unet(project(batch)).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""
REDUCED = (TRAIN % (DDP, SUM)).replace(
    "        optimizer.step()\n",
    "        for p in criterion.parameters():\n            dist.all_reduce(p.grad)\n        optimizer.step()\n",
)
BACKBONE = (TRAIN % ("model = DDP(net, device_ids=[device])", SUM)).replace(
    "from head import Margin, Plain", "from torchvision.models import resnet18"
)
PARTS = """\
import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers.append(nn.Linear(a, b))
    return nn.Sequential(*layers)


class Ranker%s:
    def __init__(self):
%s        self.table = nn.EmbeddingBag(100, 8)
        self.top = mlp(8, 8, 1)

    def %s(self, ids):
        return self.top(self.table(ids))

%s
device = int(os.environ["LOCAL_RANK"])
model = Ranker()
for part in (model.table, model.top):
    part.to(device)
model.table = DDP(model.table, device_ids=[device])
%s
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for ids in torch.utils.data.DataLoader([torch.ones(4)] * 8):
    optimizer.zero_grad()
    model(ids.to(device)).mean().backward()
    optimizer.step()
"""
MODULE = ("(nn.Module)", "        super().__init__()\n", "forward")
YIELDS = """\
    def parameters(self):
        for part in (self.table, self.top):
            yield from part.parameters()

"""
LIST = """\
    def parameters(self):
        found = []
        for part in (self.table, self.top):
            found += part.parameters()
        return found

"""
TOP = "model.top = DDP(model.top, device_ids=[device])"
BOTH = """

class Both(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleDict()
        self.parts.update(parts)

    def forward(self, x, labels):
        return self.parts["head"](self.parts["net"](x), labels)
"""
