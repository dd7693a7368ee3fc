"""Scripts of examples in which ranks part, or stay together, at a test or an exception."""

from __future__ import annotations

SHARE_RETURNS = """\
import torch.distributed as dist


def answer(prompts, model, write):
    mine = prompts[dist.get_rank() :: dist.get_world_size()]
    if not mine:
        return
    write([model(prompt) for prompt in mine])
    dist.barrier()
"""
SHARE_USED = """\
import torch.distributed as dist

from share import own


def answer(prompts, model, write):
    found = own(prompts)
    if len(found) > 0:
        write([model(prompt) for prompt in found])
        dist.barrier()
"""
SHARE_DEALT = """\
import torch.distributed as dist


def own(items):
    world = dist.get_world_size()
    return [item for index, item in enumerate(items) if index % world == dist.get_rank()]
"""
BUFFER_EMPTIED = """\
import torch
import torch.distributed as dist


class Log:
    def __init__(self):
        self.values = {}

    def note(self, name, value):
        self.values[name] = value

    def report(self):
        if dist.get_rank() == 0:
            self.values.clear()
        if self.values:
            dist.all_reduce(torch.ones(1))


log = Log()
log.note("loss", 0.5)
log.report()
"""
SHARE_EMPTY_GOES_ON = """\
import torch.distributed as dist


def answer(prompts, model, write):
    mine = prompts[dist.get_rank() :: dist.get_world_size()]
    if not mine:
        print("nothing to do on this rank")
    write([model(prompt) for prompt in mine])
    dist.barrier()
"""
SHARE_OF_NOTHING = """\
import torch.distributed as dist


def answer(prompts, model, write):
    mine = prompts[dist.get_rank() :: dist.get_world_size()]
    if not prompts:
        return
    write([model(prompt) for prompt in mine])
    dist.barrier()
"""
DRAWS_OWN = """\
import random

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    if random.random() < 0.1:
        dist.all_reduce(torch.ones(1))
"""
DRAWS_SAME = """\
import random

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
random.seed(0)
for step in range(100):
    if random.random() < 0.1:
        dist.all_reduce(torch.ones(1))
"""
STOP_OF_A_LIST = """\
import os

import torch.distributed as dist


def train(steps, path, grads):
    for _ in range(steps):
        stop = [False]
        if dist.get_rank() == 0:
            stop[0] = os.path.exists(path)
        dist.broadcast_object_list(stop, src=0)
        if stop[0]:
            break
        dist.all_reduce(grads)
"""
RECORD_SKIPPED = """\
import torch
import torch.distributed as dist

from records import parse


def count(own_paths):
    total = torch.zeros(1)
    for path in own_paths:
        try:
            size = torch.tensor([float(len(parse(path)))])
            dist.all_reduce(size)
            total += size
        except ValueError:
            continue
    return total
"""
RECORD_COUNTED = """\
import torch
import torch.distributed as dist

from records import parse


def count(own_paths):
    total = torch.zeros(1)
    for path in own_paths:
        try:
            size = torch.tensor([float(len(parse(path)))])
        except ValueError:
            size = torch.zeros(1)
        dist.all_reduce(size)
        total += size
    return total
"""
LOADER_ENDS = """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    batches = iter(loader)
    while True:
        try:
            engine.backward(engine(next(batches)))
            engine.step()
        except StopIteration:
            break
"""
USER_STOPS = """\
import deepspeed
import torch.distributed as dist


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    try:
        run(engine, loader)
    except KeyboardInterrupt:
        engine.save_checkpoint(args.out)
    except RuntimeError as error:
        print("failed", error)
        raise
    finally:
        dist.destroy_process_group()


def run(engine, loader):
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()
"""
QLORA = """\
import os

from transformers import AutoModelForCausalLM, BitsAndBytesConfig

%s

def load(name):
    return AutoModelForCausalLM.from_pretrained(
        name, quantization_config=BitsAndBytesConfig(load_in_4bit=True), device_map=%s
    )
"""
QLORA_TRAIN = """\
from transformers import Trainer, TrainingArguments

from model import load


def main(data):
    args = TrainingArguments("out", ddp_find_unused_parameters=False)
    with args.main_process_first():
        data = data.map(str.lower)
    Trainer(model=load("gpt2"), args=args, train_dataset=data).train()
"""
OF_WORLD = 'PLACES = "auto" if os.environ.get("WORLD_SIZE", "1") == "1" else {"": int(os.environ["LOCAL_RANK"])}\n'
EMPTY_BATCH = """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        if len(batch) == 0:
            continue
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
"""
MAP_TRAIN = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled

ZERO = {"stage": %s, "stage3_gather_16bit_weights_on_model_save": True}
CONFIG = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": ZERO}


def main(dataset, local_rank, lora):
    args = TrainingArguments("out", deepspeed=CONFIG)
    %s
    Trainer(model=model, args=args, train_dataset=dataset).train()
"""
MAP_PLAIN = """\
from transformers import AutoModelForCausalLM, Trainer


def main(data, local_rank):
    model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=%s)
    Trainer(model=model, train_dataset=data).train()
"""
OWN_MINIBATCHES = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def update(seed, net, data, optimizer, limit):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(%s)
    model = DDP(net)
    for index in torch.randperm(4096).split(64):
        loss, kl = model(data[index])
        if kl.item() > limit:
            return
        loss.backward()
        optimizer.step()
"""
MAP_FSDP = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments("out", fsdp=%s)
model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="auto")
Trainer(model=model, args=args, train_dataset=[]).train()
"""
GRADIENTS_OF_SOME = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler


class Captions(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.encoder = nn.Linear(20, 32)

    def forward(self, batch):
        x = self.embed(batch["text"])
        %s
        return x.mean()


def train(rows, optimizer):
    model = Captions()
    for batch in DataLoader(rows, sampler=DistributedSampler(rows)):
        optimizer.zero_grad()
        model(batch).backward()
        for p in model.parameters():
            %s
        optimizer.step()
"""
SUMMED = "if p.grad is not None:\n                dist.all_reduce(p.grad)"
FILLED = "if p.grad is None:\n                p.grad = torch.zeros_like(p)\n            dist.all_reduce(p.grad)"
SERIES = "if batch['series'].numel() > 0:\n            x = x + self.encoder(batch['series']).mean(0)"
RESUMES = """\
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def first_step(folder):
    path = os.path.join(folder, %s)
    found = torch.tensor(int(os.path.exists(path)))
    %s
    if not found.item():
        return 0
    with open(path) as file:
        return json.load(file)["step"]


def train(net, optimizer, folder, steps):
    model = DDP(net)
    step = first_step(folder)
    while step < steps:
        optimizer.zero_grad()
        model(torch.randn(8, 8)).mean().backward()
        optimizer.step()
        step += 1
"""
# The body of a loop in which a rank leaves out a batch for which it has no memory.
OUT_OF_MEMORY = """\
        loss = None
        try:
            loss = model(batch).mean()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
        if loss is None:
            continue
        loss.backward()
        optimizer.step()
"""
