"""The mode of models: which side of `if self.training` a forward pass takes after `train()` and `eval()`."""

from __future__ import annotations

import textwrap

import pytest

from dslint.python.entries import Analysis
from dslint.python.events import Event, events
from dslint.python.files import Texts

_MODEL = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Layer(torch.nn.Module):
    def forward(self, x):
        if self.training:
            dist.all_reduce(x)
        else:
            dist.barrier()
        return x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


dist.init_process_group("nccl")
net = Net().cuda()
model = DDP(net)
"""


def collectives(code: str) -> set[str]:
    found = Analysis(Texts({"train.py": _MODEL + textwrap.dedent(code)}))
    found.script("train.py")
    every = [event for entry in found.entries for event in events(entry.tree) if isinstance(event, Event)]
    return {e.api.rpartition(".")[2] for e in every} & {"all_reduce", "barrier"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("net(torch.ones(1))", {"all_reduce", "barrier"}),
        ("net.eval()\nnet(torch.ones(1))", {"barrier"}),
        ("model.eval()\nnet(torch.ones(1))", {"barrier"}),
        ("net.eval()\nmodel.train()\nmodel(torch.ones(1))", {"all_reduce"}),
        ("net.train(mode=False)\nmodel(torch.ones(1))", {"barrier"}),
        ("net.train(False)\nnet.train(dist.is_nccl_available())\nnet(torch.ones(1))", {"all_reduce", "barrier"}),
        ("net.layers.eval()\nnet(torch.ones(1))", {"barrier"}),
        (
            "for epoch in range(9):\n  model.train()\n  model(torch.ones(1))\n  net.eval()\n  net(torch.ones(1))",
            {"all_reduce", "barrier"},
        ),
    ],
)
def test_a_forward_takes_the_side_of_its_mode(code: str, expected: set[str]) -> None:
    assert collectives(code) == expected


def test_a_trainer_sets_the_mode_itself() -> None:
    code = """
    from transformers import Trainer

    class Own(Trainer):
        def compute_loss(self, model, inputs):
            return net(inputs["x"]).sum()

    net.eval()
    Own(model=net).train()
    """
    assert collectives(code) >= {"all_reduce", "barrier"}
