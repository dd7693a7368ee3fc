"""False alarms of projects that nobody had looked at before, each as a small project that must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.engine.run import check_paths
from dslint.settings import make_settings

_SAMPLERS = """\
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def first(data):
    sampler = DistributedSampler(data)
    return DataLoader(data, sampler=sampler), sampler


def second(data):
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=4, sampler=sampler), sampler


MAKERS = {"first": {"train": first}, "second": {"train": second}}
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader, sampler = MAKERS[sys.argv[1]]["train"](torch.load("data.pt"))
for epoch in range(9):
    sampler.set_epoch(epoch)
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
"""
_STEP = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(model, loader, optimizer: torch.optim.Optimizer):
    for x in loader:
        model(x).sum().backward()
        optimizer.step()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
train(model, torch.load("data.pt"), torch.optim.SGD(model.parameters(), lr=0.1))
"""
_SERVE = """\
import torch.distributed as dist
from vllm.engine.ray_utils import initialize_ray_cluster

dist.init_process_group("gloo")
initialize_ray_cluster()
"""


@pytest.mark.parametrize(
    ("code", "files"),
    [
        pytest.param("DSL255", {"train.py": _SAMPLERS}, id="one call of functions that make samplers"),
        pytest.param(
            "DSL503", {"train.py": _STEP, "requirements.txt": "torch==1.12.1\n"}, id="a method of the base class"
        ),
        pytest.param(
            "DSL501", {"serve.py": _SERVE, "requirements.txt": "vllm==0.4.1\n"}, id="a patch that nobody has read"
        ),
    ],
)
def test_what_was_a_false_alarm_is_silent(
    code: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1, "select": [code]}, tmp_path))
    assert [f"{f.location}: {f.message}" for f in result.findings] == []
