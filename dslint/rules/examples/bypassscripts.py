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

# A name is given to the model inside where there is a wrapper.
SAMPLED = """\
import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Linear):
    def sample(self, x):
        words = self(x)
        return words, words.log()


def step(model, batch, criterion):
    inner = model
    if hasattr(model, "module"):
        inner = %s
    if batch is None:
        return None
    # what follows is the training step
    words, logs = %s
    return criterion(words, logs)


def main(args, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(args.gpu)
    model = Net(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    if args.distributed:
        model = DDP(model, device_ids=[args.gpu])
    for batch in loader:
        loss = step(model, batch, torch.nn.MSELoss())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


parser = argparse.ArgumentParser()
parser.add_argument("--distributed", action="store_false")
parser.add_argument("--gpu", type=int)
main(parser.parse_args(), torch.load("data.pt"))
"""

# An evaluation that needs gradients for what it shows.
MAPS = """\
import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Linear):
    def embeds(self, x):
        return self(x)


def logged(loader):
    for at, batch in enumerate(loader):
        yield batch
        print(at)


def evaluate(model, loader):
    model.eval()
    for batch in logged(loader):
        score = model.embeds(batch).sum()
        model.zero_grad()
        score.backward()


def main(args, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(args.gpu)
    model = inner = Net(4, 4).cuda()
    if args.distributed:
        model = DDP(model, device_ids=[args.gpu])
        inner = model.module
    evaluate(inner, loader)
    dist.destroy_process_group()


parser = argparse.ArgumentParser()
parser.add_argument("--distributed", action="store_false")
parser.add_argument("--gpu", type=int)
main(parser.parse_args(), torch.load("data.pt"))
"""
