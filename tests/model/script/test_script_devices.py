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
