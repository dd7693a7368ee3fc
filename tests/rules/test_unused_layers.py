"""Which model a DDP wrapper gets, and which of its layers a forward leaves out."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.rules.script import dsl234_ddp_unused_parameter as rule

MODEL = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
class Model(nn.Module):
    def __init__(self, wide=False):
        super().__init__()
        self.used, self.odd = nn.Linear(4, 4), 1
        self.spare = nn.Linear(4, 4)
        self.act = nn.ReLU()
    def forward(self, rows, images=None, *, masks=None):
        return self.act(self.used(rows))
"""
STEP = "for b in data:\n    model(b).mean().backward()\n"
WRAPPED = (
    "model = DDP(Model())\n",
    "model = Model()\nmodel = DDP(model)\n",
    "model = Model().to('cuda')\nmodel = model.half()\nmodel = DDP(model, device_ids=[0])\n",
    "def make():\n    return Model(wide=True)\nmodel = DDP(make())\n",
    "net = Model()\nmodel = DDP(net.cuda())\n",
)
LEFT_ALONE = (
    "model = DDP(Model(), static_graph=True)\n",
    "model = DDP(other)\n",
    "model = Model() if a else Other()\nmodel = DDP(model)\n",
    "model = DDP(Model())\nfor p in model.parameters():\n    p.grad = None\n",
    "model = DDP(Model())\nhead = model.module.spare\n",
    "model = nn.DataParallel(Model())\n",
)


@pytest.mark.parametrize("code", WRAPPED)
def test_ways_to_wrap(code: str) -> None:
    """The class is found behind names, helpers and `.to()`."""
    (finding,) = findings(rule, MODEL + code + STEP)
    assert finding.fact("layer") == "spare"


@pytest.mark.parametrize("code", LEFT_ALONE)
def test_what_is_left_alone(code: str) -> None:
    """Other models, other wrappers, layers that may be reached."""
    assert findings(rule, MODEL + code + STEP) == []


def used_under(test: str, call: str) -> int:
    """Findings for a layer that forward uses under a test, and a training call."""
    body = f"        if {test}:\n            rows = self.spare(rows)\n        return self.act(self.used(rows))\n"
    code = MODEL.replace("        return self.act(self.used(rows))\n", body)
    return len(findings(rule, code + "model = DDP(Model())\n" + STEP.replace("model(b)", call)))


def test_conditions() -> None:
    """Only an optional argument that no call gives leaves a layer out for certain."""
    assert used_under("images is not None", "model(b)") == 1
    assert used_under("masks is not None", "model(b, b)") == 1
    assert used_under("images", "model(b)") == 1
    assert used_under("images is not None", "model(b, b)") == 0
    assert used_under("images is not None", "model(b, images=b)") == 0
    assert used_under("images is not None", "model(**b)") == 0
    assert used_under("self.training", "model(b)") == 0
    assert used_under("rows.sum() > 0", "model(b)") == 0


def parts_left_out(made: str, result: str, wrap: str = "DDP(Net())") -> list[object]:
    """The layers that a model of named parts leaves out."""
    code = (
        "import torch\nfrom torch import nn\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {made}\n    def forward(self, x):\n        return {result}\nmodel = {wrap}\n" + STEP
    )
    return [finding.fact("layer") for finding in findings(rule, code)]


DICT = "self.heads = nn.ModuleDict({'a': nn.Linear(4, 4), 'b': nn.Linear(4, 4)})"
SET = "self.heads = nn.ModuleDict()\n        for k in ('a', 'b'):\n            self.heads[k] = nn.Linear(4, 4)"
LIST = "self.outs = nn.ModuleList()\n        for i in range(3):\n            self.outs.append(nn.Linear(4, 4))"
MADE = "self.outs = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])"


@pytest.mark.parametrize(
    ("made", "result", "left"),
    [
        (DICT, "self.heads['a'](x)", ["heads['b']"]),
        (SET, "self.heads['a'](x)", ["heads['b']"]),
        (LIST, "self.outs[1](self.outs[0](x))", ["outs[2]"]),
        (MADE, "self.outs[0](x) + self.outs[-2](x)", ["outs[2]"]),
        (DICT, "self.heads['a'](x) + self.heads['b'](x)", []),
        (DICT, "sum(head(x) for head in self.heads.values())", []),
        (SET, "self.heads[self.name](x)", []),
        (LIST, "self.outs[-1](self.outs[1](self.outs[0](x)))", []),
        (LIST.replace("range(3)", "range(size)"), "self.outs[0](x)", []),
        (DICT.replace("nn.Linear(4, 4)})", "nn.ReLU()})"), "self.heads['a'](x)", []),
    ],
)
def test_parts_that_are_named_one_by_one(made: str, result: str, left: list[str]) -> None:
    """A part of a container is left out where all code names the parts that it reads."""
    assert parts_left_out(made, result) == left
    assert parts_left_out(made, result, "DDP(Net(), find_unused_parameters=True)") == []


@pytest.mark.parametrize(("speakers", "left"), [("1", ["spare"]), ("4", []), ("count", [])])
def test_a_layer_of_lightning_that_a_kept_argument_decides_about(speakers: str, left: list[str]) -> None:
    """`self.hparams` holds the arguments of the constructor."""
    code = (
        "import lightning as L\nimport torch\nfrom torch import nn\n"
        "class Net(L.LightningModule):\n    def __init__(self, speakers=1):\n        super().__init__()\n"
        "        self.save_hyperparameters()\n        self.used = nn.Linear(4, 4)\n"
        "        self.spare = nn.Embedding(speakers, 4)\n    def training_step(self, batch, index):\n"
        "        h = self.used(batch)\n        if self.hparams.speakers > 1:\n            h = h + self.spare(index)\n"
        f"        return h.mean()\nL.Trainer(devices=4, strategy='ddp').fit(Net({speakers}), data)\n"
    )
    assert [finding.fact("layer") for finding in findings(rule, code)] == left
