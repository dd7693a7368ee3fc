"""Scripts of the examples about reentrant checkpointing under `DistributedDataParallel` (DSL296)."""

MODEL = """\
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def encode(self, x):
        for layer in self.layers:
            if self.training%s:
                x = checkpoint(layer, x%s)
        return x

    def forward(self, x, y):
        return (%s).mean()
"""
TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Net


def main(loader, local_rank):
    dist.init_process_group("nccl")
    model = DDP(Net().cuda(), device_ids=[local_rank]%s)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        model(x, y).backward()
        optimizer.step()
"""
SEARCH = ", find_unused_parameters=True"
TRUE = ", use_reentrant=True"
ONCE = "self.encode(x) - y"
HF = """\
import os

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def arguments():
    return TrainingArguments(
        "out",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": %s},
        ddp_find_unused_parameters=True,
    )


def main(dataset):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model=model, args=arguments(), train_dataset=dataset).train()
"""
PLAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM


def build(local_rank):
    model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=%s))
    return DistributedDataParallel(model, device_ids=[local_rank], find_unused_parameters=True)


def main(loader, local_rank):
    dist.init_process_group("nccl")
    model = build(local_rank)
    for batch in loader:
        model(**batch).loss.backward()
"""

HANDLERS = """\
from accelerate import Accelerator, DistributedDataParallelKwargs
from transformers import AutoModelForCausalLM


def main(loader):
    handler = DistributedDataParallelKwargs(find_unused_parameters=%s)
    accelerator = Accelerator(kwargs_handlers=[handler])
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model, loader = accelerator.prepare(model, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
"""

ENCODER = """\
from accelerate import Accelerator
from torch import nn
from transformers import AutoModel


class Retriever(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(name, add_pooling_layer=False)
        self.encoder.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": %s})

    def embed(self, inputs):
        return self.encoder(**inputs).last_hidden_state[:, 0]

    def forward(self, query, passage):
        return (self.embed(query) * %s).sum()


def main(loader, optimizer):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(Retriever("distilbert-base-uncased"), optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch["query"], batch["passage"]))
        optimizer.step()
"""
ADAPTED = """\
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main(dataset):
    args = TrainingArguments(
        "out",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},%s
    )
    with args.main_process_first():
        dataset = dataset.map(str.lower)
    model = %s
    Trainer(model=model, args=args, train_dataset=dataset).train()
"""
PEFT = 'get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig())'
ENABLED = """\
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def load(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))


def main(dataset):
    args = TrainingArguments("out", ddp_find_unused_parameters=%s)
    Trainer(model=load("meta-llama/Llama-2-7b-hf"), args=args, train_dataset=dataset).train()
"""
