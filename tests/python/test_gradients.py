"""Which gradients are missing on some ranks only."""

from __future__ import annotations

import pytest

from dslint.python.entries import Analysis
from dslint.python.files import Texts
from dslint.python.values import Value
from dslint.python.varies import DATA

MODEL = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.act = nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU()

    def forward(self, batch):
        x = self.first(batch["x"])
        {forward}
        return x.mean()


def train(rows, long):
    model = Net()
    {made}
    for batch in DataLoader(rows):
        model(batch).backward()
        {before}
        for p in model.parameters():
            missing = p.grad is None
            missing


train([1], True)
"""
OWN = "if batch['y'].sum() > 0:\n            x = self.second(x)"
RETURNS = "if batch['y'].sum() > 0:\n            return x.mean()\n        x = self.second(x)"


def varies(forward: str, made: str = "pass", before: str = "pass") -> int:
    analysis = Analysis(Texts({"main.py": MODEL.format(forward=forward, made=made, before=before)}))
    found = []

    def note(module: object, node: object, value: Value) -> None:
        if getattr(node, "id", "") == "missing" and type(getattr(node, "ctx", None)).__name__ == "Load":
            found.append(analysis.machine.varies(value))

    analysis.machine.recorder = note
    analysis.script("main.py")
    assert found
    return found[-1]


@pytest.mark.parametrize("forward", [OWN, RETURNS])
def test_a_layer_that_some_batches_run_leaves_gradients_out(forward: str) -> None:
    assert varies(forward) & DATA


@pytest.mark.parametrize(
    "forward",
    [
        "x = self.second(x)",
        "if self.training:\n            x = self.second(x)",
        OWN.replace("second", "act"),
        f"{OWN}\n        else:\n            x = x + self.second(x) * 0",
        f"{OWN}\n        x = x + self.second(x) * 0",
    ],
)
def test_a_layer_that_all_ranks_run_has_a_gradient_on_all(forward: str) -> None:
    assert not varies(forward) & DATA


def test_a_wrapper_averages_the_gradients_of_all_layers() -> None:
    assert not varies(OWN, "model = DDP(model, find_unused_parameters=True)") & DATA


def test_gradients_that_were_filled_are_there() -> None:
    filled = (
        "for q in model.parameters():\n            if q.grad is None:\n                q.grad = torch.zeros_like(q)"
    )
    assert not varies(OWN, before=filled) & DATA
    assert (
        varies(
            OWN, before="for q in model.parameters():\n            if q.grad is not None:\n                q.grad /= 2"
        )
        & DATA
    )
