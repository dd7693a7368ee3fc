"""Scripts of the examples about models that run past their wrapper."""

from __future__ import annotations

TRAIN = """\
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, rank):
    model = DDP(net.to(rank), device_ids=[rank])
    for batch, labels in loader:
        loss = F.cross_entropy(%s(batch), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""

REFERENCE = """\
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, rank):
    reference = torch.nn.Linear(8, 8)
    model = DDP(net.to(rank), device_ids=[rank])
    for batch in loader:
        with torch.no_grad():
            target = reference(batch)
        loss = F.mse_loss(%s(batch).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
TARGET = (REFERENCE % "model").replace("reference(batch)", "model.module(batch)")

GETTER = """\
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, distributed):
        self.model = net
        if distributed:
            self.model = DistributedDataParallel(net)

    def inner(self):
        return self.model.module if hasattr(self.model, "module") else self.model

    def train(self, loader, optimizer):
        optimizer.add(self.inner().parameters())
        for batch in loader:
            loss = %s
            loss.backward()
            optimizer.step()
"""

# Parts of a model by name; a wrapper refuses a module without parameters.
PARTS = """\
import torch
from features import Fbank
from torch.nn.parallel import DistributedDataParallel as DDP


class Brain:
    def __init__(self, modules):
        self.modules = {name: self.wrap(module.cuda()) for name, module in modules.items()}

    def wrap(self, module):
        if any(p.requires_grad for p in module.parameters()):
            return DDP(module)
        return module

    def compute(self, batch):
        return self.modules["head"](self.modules["embed"]%s(self.modules["features"](batch))).mean()

    def fit(self, loader, optimizer):
        for batch in loader:
            self.compute(batch).backward()
            optimizer.step()


def main(loader, optimizer):
    modules = {"features": Fbank(16000), "embed": torch.nn.Linear(80, 192), "head": torch.nn.Linear(192, 8)}
    Brain(modules).fit(loader, optimizer)
"""

# What Fabric sets up hands out its parts bare; the wrapper itself runs only where nothing has a gradient.
FABRIC = """\
import torch
from lightning import Fabric


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

    def encode(self, batch):
        return self.encoder(batch).relu()

    def forward(self, batch):
        return self.head(self.encode(batch))


@torch.no_grad()
def evaluate(model, batch):
    return model(batch).mean()


def train(loader):
    fabric = Fabric(devices=4, strategy="%s")
    net = Net()
    model, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters()))
    for batch in fabric.setup_dataloaders(loader):
        fabric.backward(%s.mean())
        optimizer.step()
        optimizer.zero_grad()
        print(evaluate(model, batch))
"""
