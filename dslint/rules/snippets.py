"""Scripts that the examples of several rules begin with; an example that needs another line replaces it."""

from __future__ import annotations

# A script of transformers that takes all its arguments from the command line.
TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(training_args,) = parser.parse_args_into_dataclasses()
trainer = Trainer(model=None, args=training_args)
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
    Trainer(model=model, args=args, train_dataset=data, tokenizer=tokenizer).train()
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
