"""Scripts with options, for examples of rules about what nobody reads."""

from __future__ import annotations

FIELDS = """\
from dataclasses import dataclass, field

from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments
from trl import DPOTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="gpt2")
    beta: float = field(default=0.1)


def main():
    script_args, training_args = HfArgumentParser((ScriptArguments, TrainingArguments)).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(script_args.model_name)
    trainer = DPOTrainer(model, args=training_args, train_dataset=[]%s)
    trainer.train()


main()
"""

METHODS = """\

class Maker:
    def __init__(self, lr, decay=None):
        self.lr = lr
        self.decay = decay

    def make(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.lr)

"""

TRAIN = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

%s
def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    return parser.parse_args()


def main():
    args = get_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(%s)
    for x in torch.load("data.pt"):
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


main()
"""
