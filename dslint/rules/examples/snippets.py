"""Scripts that the examples of several rules begin with; an example that needs another line replaces it."""

from __future__ import annotations

# A script of transformers that takes all its arguments from the command line.
TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(training_args,) = parser.parse_args_into_dataclasses()
trainer = Trainer(model=None, args=training_args, eval_dataset=[{}])
trainer.train()
"""

# A script of plain DeepSpeed whose config the command line names.
ARGUMENTS = """\
import argparse

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
deepspeed.add_config_arguments(parser)
args = parser.parse_args()
model = torch.nn.Linear(8, 8)
engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
"""

# A script of plain DeepSpeed that names its config itself.
ENGINE = """\
import deepspeed
import torch

model = torch.nn.Linear(8, 8)
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds.json")
"""

# The same with an optimizer of its own: a line that makes it, and how it is passed.
CLIENT = """\
import deepspeed
import torch

model = make_model()
%s
model, optimizer, _, _ = deepspeed.initialize(model=model, config="ds.json"%s)
"""

# The loop of a DDP model; the body of the loop follows.
DDP_LOOP = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, limit):
    model = DDP(net)
    for step, batch in enumerate(loader):
"""
# Arguments that transformers renamed: since 4.51 and since 5.0.
OLD_TRAINER = """\
from transformers import Trainer, TrainingArguments


def train(model, data, tokenizer):
    args = TrainingArguments(
        output_dir="out",
        evaluation_strategy="steps",
        bf16=True,
    )
    Trainer(model=model, args=args, train_dataset=data, eval_dataset=data, tokenizer=tokenizer).train()
"""

# A loop with an engine in one arm and plain torch in the other.
TWO_ARMS = """\
import deepspeed


def train(args, model, loader, optimizer):
    if args.deepspeed:
        model, optimizer, _, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)
    for batch in loader:
        loss = model(batch)
        if args.deepspeed:
            model.backward(loss)
            model.step()
        else:
            loss.backward()
            optimizer.step()
"""
# Callbacks that look for a file on the first process: what they do then is left open.
HF_CALLBACK = """\
import os

from transformers import TrainerCallback

class StopFile(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero and os.path.exists("stop"):
%s        return control
"""
LIGHTNING_CALLBACK = """\
import os

from lightning.pytorch.callbacks import Callback

class StopFile(Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.is_global_zero and os.path.exists("stop"):
            trainer.should_stop = True
        %s
"""
# A loss that is normalised over all ranks: where, and what it returns.
LOSS_OF_POSITIVES = """\
import torch
import torch.distributed as dist


def mean(found):
    count = torch.tensor(float(len(found)), device=found.device)
    dist.all_reduce(count)
    return count / dist.get_world_size()


def loss(losses, labels):
    found = labels.nonzero().reshape(-1)
    %s%s
    return losses.sum()
"""
# A step that skips the batch of one rank.
STEP_OF_AN_ENGINE = """\
import deepspeed
import torch


class Step:
    def __init__(self, args, model):
        self.engine, _, _, _ = deepspeed.initialize(args=args, model=model)

    def __call__(self, batch):
        loss = self.engine(**batch).loss
        if not torch.isfinite(loss):
            return None
        self.engine.backward(loss)
        self.engine.step()
        return loss
"""
# Rank 0 decides to stop, and tells the others.
STOP_THAT_IS_TOLD = """\
import os

import torch.distributed as dist

RANK = int(os.getenv("RANK", -1))


def train(model, epochs, stopper, loader, validate):
    stop = False
    for epoch in range(epochs):
        for batch in loader:
            dist.all_reduce(batch)
        if RANK in {-1, 0}:
            stop = stopper(epoch=epoch, fitness=validate(model))
        if RANK != -1:
            told = [stop if RANK == 0 else None]
            dist.broadcast_object_list(told, 0)
            if RANK != 0:
                stop = told[0]
        if stop:
            break
"""
# A loader that another module makes, and two tests of what each rank has for itself.
LOADER_FROM_ELSEWHERE = """\
import time

import torch.distributed as dist
from project import build_loader

train_loader = build_loader()
start = time.time()
for batch in train_loader:
    if time.time() - start > 3600:
        break
    if batch["mask"].sum() == 0:
        continue
    dist.all_reduce(batch["x"])
"""
# Rank 0 alone looks for the file that ends the loop.
STOP_OF_RANK_0 = """\
import os

import torch.distributed as dist


def train(steps, path, grads):
    for _ in range(steps):
        stop = False
        if dist.get_rank() == 0:
            stop = os.path.exists(path)
        if stop:
            break
        dist.all_reduce(grads)
"""
# A loader with a distributed sampler, and the class of another file that trains on it.
SAMPLED_DATA = """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder


def loaders(folder, batch):
    items = ImageFolder(folder)
    return DataLoader(items, batch, sampler=DistributedSampler(items%s))
"""
EPOCH_RUNNER = """\
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from data import loaders


class Runner:
    def __init__(self, loader):
        self.loader = loader
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1).cuda())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def epoch(self):
        for images, _ in self.loader:
            self.model(images).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def fit(self, epochs):
        for epoch in range(epochs):
            %sself.epoch()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    Runner(loaders(sys.argv[1], 8)).fit(%s)
"""
# A training set that is divided, a test set that may be, and a script that trains and evaluates.
EVALUATION_DATA = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler, Subset
from torchvision.datasets import CIFAR10


def loaders(folder):
    train, test = CIFAR10(folder), CIFAR10(folder, train=False)
    sampler = DistributedSampler(train)
    return DataLoader(train, 64, sampler=sampler), %s
"""
EVALUATION = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from data import loaders


def mean(numbers):
    dist.all_reduce(numbers, op=dist.ReduceOp.SUM)
    return numbers / dist.get_world_size()


def evaluate(model, loader):
    counts = torch.zeros(2, device="cuda")
    with torch.no_grad():
        for index, (images, labels) in enumerate(loader):
%s            counts[0] += (model(images.cuda()).argmax(1) == labels.cuda()).sum()
            counts[1] += labels.numel()
%s    return counts[0] / counts[1]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    train, test = loaders("data")
    model = DistributedDataParallel(torch.nn.Linear(4, 2).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        train.sampler.set_epoch(epoch)
        for images, labels in train:
            torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda()).backward()
            optimizer.step()
            optimizer.zero_grad()
        print(evaluate(model, test))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
PREPARED_ENCODER = """\
from accelerate import Accelerator
from transformers import CLIPTextModel


def embed(encoder, ids):
    return encoder(input_ids=ids)[0]


def train(net, optimizer, loader, trains_text):
    accelerator, encoder = Accelerator(), CLIPTextModel.from_pretrained("x")
    if trains_text:
        encoder = accelerator.prepare(encoder)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for batch in loader:
        accelerator.backward(net(embed(encoder, batch["ids"])).mean())
        optimizer.step()
        optimizer.zero_grad()
"""

# A generator goes on with its loader for ever; the loop ends by what it has counted.
COUNTS_SIZES = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


def endless(files, size):
    while True:
        yield from DataLoader(files[dist.get_rank() :: dist.get_world_size()], batch_size=size, drop_last=True)


def evaluate(model, files, wanted):
    dist.init_process_group("nccl")
    data = endless(files, 8)
    losses, done = [], 0
    while done < wanted:
        batch = next(data)
        loss = model(batch).mean() / dist.get_world_size()
        dist.all_reduce(loss)
        losses.append(loss.item())
        done += dist.get_world_size() * batch.shape[0]
    return losses
"""
