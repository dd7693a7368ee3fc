"""Scripts of examples: a model that is built in parts over the ranks, and what touches its weights."""

SPREAD_MODEL = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        nn.init.normal_(self.scale)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.head = nn.Linear(width, 1)
%s

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x * self.scale)

    def reset(self):
        for module in self.modules():
            if isinstance(module, nn.Linear):
%s

    def restore(self, path):
        self.head.load_state_dict(torch.load(path, map_location="cpu"))
"""
SPREAD_TRAIN = """\
import deepspeed

from model import Net

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


def build():
    with deepspeed.zero.Init(config_dict_or_path=CONFIG%s):
        net = Net()
%s
    return net


def main(batches):
    net = build()
    engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
    for batch in batches:
        engine.backward(engine(batch).mean())
        engine.step()
"""
PLAIN = "                nn.init.normal_(module.weight, std=0.02)"
GATHERED = """\
                with deepspeed.zero.GatheredParameters([module.weight], modifier_rank=0):
                    nn.init.normal_(module.weight, std=0.02)"""
APPLY = """\
        self.apply(self._init)

    def _init(self, module):
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)"""
