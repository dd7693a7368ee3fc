"""Scripts of the examples of DSL740: models that are loaded in float16 and trained."""

from __future__ import annotations

TRAINER = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from data import load


def main(name):
    data = load()
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=%s)
    %s
    args = TrainingArguments("out", max_steps=100, %s)
    Trainer(model=model, args=args, train_dataset=data).train()


main("gpt2")
"""

# The command line asks for fp16.
PARSED = """\
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

from data import load


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    data = load()
    model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float16)
    Trainer(model=model, args=args, train_dataset=data).train()


main()
"""

ACCELERATE = """\
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def main(loader):
    accelerator = Accelerator(%s)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=%s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""

PLAIN = """\
import torch
from torch.nn.parallel import DistributedDataParallel

from net import Net


def main(loader, rank):
    torch.distributed.init_process_group("nccl")
    device = torch.device("cuda", rank)
    model = Net().to(device)
    %s
    ddp = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.cuda.amp.GradScaler(%s)
    for images, labels in loader:
        with torch.cuda.amp.autocast():
            loss = torch.nn.functional.cross_entropy(ddp(images.to(device)), labels.to(device))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(32, 10)

    def forward(self, x):
        return self.body(x)
"""
