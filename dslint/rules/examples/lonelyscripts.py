"""Scripts of the examples about calls that only some ranks make."""

from __future__ import annotations

# Rank 0 saves the checkpoint of a Lightning trainer.
LIGHTNING_SAVE = """\
import lightning as L


def main(model, data):
    trainer = L.Trainer(devices=8)
    trainer.fit(model, data)
    if trainer.is_global_zero:
        trainer.save_checkpoint("last.ckpt")
"""

# A loop with a DeepSpeed engine; its end follows.
ENGINE_LOOP = """\
import deepspeed
import torch.distributed as dist


def train(args, model, loader):
    model_engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        loss = model_engine(batch)
        model_engine.backward(loss)
        model_engine.step()
"""

# The other ranks have left before the barrier.
EXPORT = """\
import torch
import torch.distributed as dist


def export(model, path):
    if dist.get_rank() != 0:
        return
    torch.save(model.state_dict(), path)
    dist.barrier()
"""

# A helper gathers, and the main process calls it.
REPORT = """\
from accelerate import Accelerator

accelerator = Accelerator()


def collect(scores):
    return accelerator.gather(scores)


def report(scores):
    if accelerator.is_main_process:
        print(collect(scores).mean())
"""

# A default that callers may never use gathers.
METRICS = """\
class Metrics:
    def __init__(self, accelerator, values):
        self.accelerator = accelerator
        self.values = values

    def display(self, step, gathered=None):
        if not self.accelerator.is_main_process:
            return
        results = self.accelerator.gather(self.values) if gathered is None else gathered
        print(step, results)
"""

# A search on rank 0 that may end the job before a barrier.
SEARCH = """\
import torch.distributed as dist


def check(wanted, entries):
    if dist.get_rank() == 0:
        for name in wanted:
            for entry in entries:
                if entry == name:
                    break
            else:
                raise ValueError(name)
    dist.barrier()
"""

# One helper chooses the rank itself, one waits for everybody.
TOOLS = """\
import torch.distributed as dist


def save(model, path):
    if dist.is_initialized() and dist.get_rank() == 0:
        model.save(path)


def wait():
    dist.barrier()
"""

# Rank 0 calls both, the others the one that waits.
USES_TOOLS = """\
import tools


def finish(model, path, rank):
    if rank == 0:
        tools.save(model, path)
        tools.wait()
    else:
        tools.wait()
"""

# The rank of a LoRA, which is the size of its matrices.
LORA = """\
import torch.distributed as dist


def merge(config, model):
    if config.lora.rank > 0:
        model.merge()
        dist.barrier()
"""

# Rank 0 prepares the data while the others wait.
DATA_FIRST = """\
import torch.distributed as dist


def load(rank, prepare):
    if rank != 0:
        dist.barrier()
    data = prepare()
    if rank == 0:
        dist.barrier()
    return data
"""

# A helper that saves without talking to other ranks.
SAFE_SAVE = """\
from transformers import Trainer


def safe_save(trainer: Trainer, path):
    state = {k: v.cpu() for k, v in trainer.model.state_dict().items()}
    trainer._save(path, state_dict=state)


def finish(trainer: Trainer, args):
    if trainer.is_world_process_zero():
        safe_save(trainer, args.output_dir)
"""
LIGHTNING_FOLDER = """\
from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only


class Notes(pl.Callback):

    %s
    def on_fit_start(self, trainer, module):
        %sPath(trainer.log_dir)


def main(module, data):
    pl.Trainer(devices=4, strategy="ddp", callbacks=[Notes()]).fit(module, data)
"""
DDP_HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


"""
DDP_EVALUATE = """\
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return [model(batch) for batch in loader]


"""

DDP_TRAINER = """\
from accelerate import Accelerator
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.%s(8))

    def forward(self, images):
        return self.layers(images)


class Trainer:
    def __init__(self, optimizer, loader):
        self.accelerator = Accelerator()
        self.model, self.optimizer, self.loader = self.accelerator.prepare(Net(), optimizer, loader)

    def show(self, images):
        save(self.model(images))

    def train(self):
        for images in self.loader:
            self.accelerator.backward(self.model(images).mean())
            self.optimizer.step()
            if self.accelerator.is_main_process:
                self.show(images)
"""

DDP_AT_END = (
    DDP_HEAD
    + """\
class Trainer:
    def __init__(self, net, optimizer, loader):
        self.model, self.optimizer, self.loader = DDP(net), optimizer, loader

    @torch.no_grad()
    def evaluate(self, model):
        return torch.stack([model(batch) for batch in self.loader]).mean()

    def fit(self):
        for batch in self.loader:
            self.model(batch).mean().backward()
            self.optimizer.step()
        %s
        if dist.get_rank() == 0:
            print(self.evaluate(%s))


def main():
    dist.init_process_group("nccl")
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    Trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), list(torch.rand(4, 8))).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
)
PARTS_TOLD = """\
import torch.distributed as dist
from mpi4py import MPI


def load(path, size):
    comm = MPI.COMM_WORLD
    if comm.Get_rank() == 0:
        data = open(path, "rb").read()
        comm.bcast(len(data) // size + 1)
        for start in range(0, len(data) + 1, size):
            comm.bcast(data[start : start + size])
    else:
        count, data = comm.bcast(None), bytes()
        for _ in range(count):
            data += comm.bcast(None)
    return data


def restore(model, path):
    if %s:
        model.load_state_dict(load(path, 100))
    for p in model.parameters():
        dist.broadcast(p, 0)


def main(model, path):
    dist.init_process_group("nccl")
    restore(model, path)
"""
