"""Scripts of the examples about samples that fill the last batch."""

from __future__ import annotations

SCORES = """\
import torch


class Scores:
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.found = []

    def add(self, logits):
        self.found.append(%s)

    def result(self):
        return %s
"""
EVALUATE = """\
from accelerate import Accelerator
from torch import nn

from scores import Scores


def evaluate(accelerator, model, loader):
    scores = Scores(accelerator)
    for batch in loader:
        scores.add(model(batch))
    return scores.result()


def main(loaders):
    accelerator = Accelerator()
    model = accelerator.prepare(nn.Linear(8, 2))
    for loader in loaders:
        print(evaluate(accelerator, model, accelerator.prepare(loader)))
"""
CAT = "torch.cat(self.found)"
NET = """\
import torch


class Linear(torch.nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width), torch.nn.Linear(width, out)])

    def forward(self, rows):
        for layer in self.layers:
            rows = layer(rows)
        return rows
"""
SPLIT = """\
from accelerate import PartialState
from accelerate.utils import gather_object


def main(prompts, complete):
    state = PartialState()
    found = []
    with state.split_between_processes(prompts%s) as mine:
        for prompt in mine:
            found.append(complete(prompt))
    every = gather_object(found)
    return every%s
"""
TAIL = """\
import torch
from accelerate import Accelerator


def main(loader, dataset):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(torch.nn.Linear(8, 2), loader)
    found = []
    for batch in loader:
        found.append(model(batch))
    return accelerator.gather(torch.cat(found))%s
"""

LOOP = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def evaluate(accelerator, model, loader):
    hits = total = 0
    for x, y in loader:
        found, wanted = accelerator.gather((model(x).argmax(-1), y))%s
        hits += (found == wanted).sum().item()
        total += wanted.numel()
    return hits / total


def main(data):
    accelerator = Accelerator(%s)
    model, loader = accelerator.prepare(torch.nn.Linear(8, 2), DataLoader(data, 4%s))
    print(evaluate(accelerator, model, loader))
"""
DROPPED = """
        found, wanted = found[: len(loader.dataset) - total], wanted[: len(loader.dataset) - total]"""

REWARDS = """\
import torch
from accelerate import Accelerator
from transformers import AutoModelForSequenceClassification, Trainer

accelerator = Accelerator()
judges = [AutoModelForSequenceClassification.from_pretrained(name) for name in ("a", "b")]


class Group(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        rewards = torch.zeros(8, 2, device=self.accelerator.device)
        for i, judge in enumerate(judges):
            rewards[:, i] = judge(**inputs).logits[:, 0]
        self.rewards.append(self.accelerator.gather_for_metrics(rewards).mean().item())
        return model(**inputs).loss


judges = accelerator.prepare(*judges)
"""
