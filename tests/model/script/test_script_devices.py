"""Which GPU a script chooses."""

from __future__ import annotations

import pytest

from tests.script_helpers import script

_HEAD = """\
import os
import torch
import torch.distributed as dist
from accelerate import Accelerator
from mmengine.dist import get_dist_info
"""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("torch.cuda.set_device(x)", "x"),
        ("get_accelerator().set_device(device=x)", "x"),
        ("d = torch.device('cuda', x)", "x"),
        ("d = f'cuda:{x}'", "x"),
        ("m.cuda(x)", "x"),
        ("DDP(m, device_ids=[x])", "x"),
        ("FSDP(m, device_id=x)", "x"),
        ("device_map = {'': x}", "x"),
    ],
)
def test_places_that_choose_by_an_index(code: str, text: str) -> None:
    ctx = script(_HEAD + code)
    assert [ctx.text(choice.index) for choice in ctx.startup.devices.choices] == [text]


@pytest.mark.parametrize("code", ["m.cuda()", "m.to('cuda')", "d = 'cuda:0'", "DDP(m, device_ids=[0, 1])", "x = {}"])
def test_places_that_choose_by_none(code: str) -> None:
    assert script(_HEAD + code).startup.devices.choices == ()


@pytest.mark.parametrize(
    ("code", "is_global"),
    [
        ("torch.cuda.set_device(dist.get_rank())", True),
        ("torch.cuda.set_device(int(os.environ['RANK']))", True),
        ("torch.cuda.set_device(int(os.getenv('SLURM_PROCID', 0)))", True),
        ("rank = -1\nrank = dist.get_rank()\ntorch.cuda.set_device(rank)", True),
        ("rank, size = get_dist_info()\ntorch.cuda.set_device(rank)", True),
        ("rank, size = get_dist_info()\ntorch.cuda.set_device(size)", False),
        ("args.rank = int(os.environ['RANK'])\ntorch.cuda.set_device(args.rank)", True),
        ("args.rank = int(os.environ['RANK'])\nargs.rank = 3 + n\ntorch.cuda.set_device(args.rank)", False),
        ("torch.cuda.set_device(Accelerator().process_index)", True),
        ("torch.cuda.set_device(Accelerator().local_process_index)", False),
        ("torch.cuda.set_device(dist.get_rank() % 8)", False),
        ("torch.cuda.set_device(dist.get_rank(group))", False),
        ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", False),
        ("def f(rank):\n    torch.cuda.set_device(rank)", False),
        ("rank = rank\ntorch.cuda.set_device(rank)", False),
    ],
)
def test_ranks_in_the_whole_job(code: str, is_global: bool) -> None:
    devices = script(_HEAD + code).startup.devices
    assert [devices.is_global_rank(choice.index) for choice in devices.choices] == [is_global]


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("m.to('cuda:0')", 1),
        ("m.to(0)", 1),
        ("m.cuda(0)", 1),
        ("torch.cuda.set_device(0)", 1),
        ("torch.device('cuda', 0)", 1),
        ("torch.load(p, map_location='cuda:0')", 1),
        ("load(p, device_map={'': 0})", 1),
        ("d = 'cuda:0' if torch.cuda.is_available() else 'cpu'\nm.to(d)", 1),
        ("d = 'cuda:0' if debug else other\nm.to(d)", 0),
        ("torch.load(p, map_location={'cuda:0': d})", 0),
        ("n = 0\nscale.to(n)", 0),
        ("print('cuda:0')", 0),
        ("torch.to(0)", 0),
        ("m.to('cuda:1')", 0),
    ],
)
def test_gpu_0_by_its_name(code: str, count: int) -> None:
    assert len(script(_HEAD + code).startup.devices.first_gpu) == count


@pytest.mark.parametrize(
    ("code", "starts"),
    [
        ("torch.cuda.is_available()", True),
        ("torch.cuda.get_device_name(0)", True),
        ("m.cuda()", True),
        ("torch.ones(1, device='cuda')", True),
        ("m.to('cuda:0')", True),
        ("torch.cuda.device_count()", False),
        ("d = torch.device('cuda:0')", False),
        ("m.to('cpu')", False),
    ],
)
def test_what_starts_cuda(code: str, starts: bool) -> None:
    assert bool(script(_HEAD + code).startup.devices.starting_cuda) is starts
