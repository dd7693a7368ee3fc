"""`f(**options)` with keys that nobody knows: which parameter gets which of them is not known either."""

from __future__ import annotations

import pytest
from script_helpers import queried

from dslint.rules.script import dsl654_own_learning_rate as dsl654

HEAD = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def optimizer_of(params, lr=1e-4, betas=(0.9, 0.99), eps=1e-8, device=None, **kwargs):
    return torch.optim.Adam(params, lr=lr, betas=betas, eps=eps)

def parted_by(prefix, options):
    parts = [dict(), dict()]
    for key in options.keys():
        parts[int(not key.startswith(prefix))][key] = options[key]
    return parts

def train(options):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DDP(torch.nn.Linear(8, 8).cuda(), device_ids=[local_rank])
    for step in range(100):
        model(torch.randn(8, 8).cuda()).sum().backward()
"""

UNKNOWN = {
    "options without those of a prefix": """
def build(model, **kwargs):
    ema, kwargs = parted_by("ema_", kwargs)
    return optimizer_of(model.parameters(), lr=1e-3, **kwargs)
train(None)
model = torch.nn.Linear(8, 8)
DDP(model)
build(model, device=int(os.environ["LOCAL_RANK"]), amp=True)
""",
    "options that a comprehension keeps": """
train(None)
model = torch.nn.Linear(8, 8)
DDP(model)
options = {"device": int(os.environ["LOCAL_RANK"]), "amp": True, "ema_decay": 0.9}
options = {name: value for name, value in options.items() if not name.startswith("ema_")}
optimizer_of(model.parameters(), **options)
""",
    "an option that only some runs have": """
import sys
train(None)
model = torch.nn.Linear(8, 8)
DDP(model)
options = {}
if len(sys.argv) > 1:
    options["device"] = int(os.environ["LOCAL_RANK"])
optimizer_of(model.parameters(), **options)
""",
    "words of a list": """
import sys
train(None)
model = torch.nn.Linear(8, 8)
DDP(model)
values = [int(os.environ["LOCAL_RANK"]) for _ in sys.argv]
optimizer_of(model.parameters(), 1e-3, *values)
""",
}
OWN = {
    "an option of that name": """
train(None)
model = torch.nn.Linear(8, 8)
DDP(model)
options = {"eps": 1e-8 * int(os.environ["LOCAL_RANK"]), "amp": True}
optimizer_of(model.parameters(), **options)
""",
    "an option of that name that is handed on": """
def build(model, **kwargs):
    return optimizer_of(model.parameters(), lr=1e-3, **kwargs)
train(None)
model = torch.nn.Linear(8, 8)
DDP(model)
build(model, eps=1e-8 * int(os.environ["LOCAL_RANK"]), amp=True)
""",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_parameter_certainly_gets_the_rank(name: str) -> None:
    assert [f.message for f in queried(dsl654, HEAD + UNKNOWN[name])] == []


@pytest.mark.parametrize("name", OWN)
def test_the_parameter_of_that_name_gets_it(name: str) -> None:
    assert queried(dsl654, HEAD + OWN[name])
