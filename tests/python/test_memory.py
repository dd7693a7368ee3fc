"""In which memory tensors lie: torch itself judges what is believed, with `meta` in the place of a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dslint.python import memory
from dslint.python.entries import Analysis
from dslint.python.events import Event, events
from dslint.python.files import Texts

ON_HOST = (
    "x = torch.zeros(1)",
    "x = torch.tensor([1.0, 2.0])",
    "x = torch.tensor([1, 2], device='cpu')",
    "x = torch.zeros(2, 2, device=torch.device('cpu'))",
    "x = torch.ones(2) * 3 + 1",
    "x = torch.ones(2)\nx += 1",
    "x = torch.ones(2, device='meta').numel()\nx = torch.tensor(x)",
    "x = torch.as_tensor([1])",
    "y = [torch.ones(1), torch.zeros(1)]\nx = torch.cat(y)",
    "x = torch.stack((torch.ones(1), torch.zeros(1))).mean(dim=0)",
    "x = torch.ones(2, 2).sum(dim=1).float().contiguous().detach()",
    "x = torch.ones(2).to(torch.float16)",
    "x = torch.mean(torch.ones(3))",
    "class Meter:\n    def __init__(self):\n        self.sum = torch.zeros(1)\nx = Meter().sum",
    "make = torch.zeros\nargs = (1,)\nx = make(*args)",
    "told = dict(device='cpu')\nx = torch.zeros(1, **told)",
)
ELSEWHERE = (
    "x = torch.zeros(1, device='meta')",
    "x = torch.zeros(1).to('meta')",
    "x = torch.zeros(1).to(torch.device('meta'), torch.float16)",
    "x = torch.zeros(1).to(device='meta')",
    "x = torch.tensor(torch.ones(1, device='meta'))",
    "x = torch.ones(2, device='meta') * torch.ones(1, device='meta')",
    "x = torch.zeros_like(torch.zeros(1), device='meta')",
    "x = torch.zeros_like(torch.zeros(1, device='meta'))",
    "x = torch.zeros(1)\nif len(sys.argv) > 1:\n    x = x\nelse:\n    x = x.to('meta')",
    "net = torch.nn.Module()\nnet.register_buffer('mean', torch.zeros(1))\nx = net.to('meta').mean",
    "told = {'device': 'meta'}\nx = torch.zeros(1, **told)",
    "y = [torch.ones(1, device='meta')]\nx = torch.cat(y)",
    "x = torch.stack([torch.ones(1, device='meta'), torch.ones(1, device='meta')]).mean()",
)


def is_believed(code: str) -> bool:
    script = f"import sys\n\nimport torch\nimport torch.distributed as dist\n\n{code}\ndist.all_reduce(x)\n"
    analysis = Analysis(Texts({"train.py": script}))
    analysis.script("train.py")
    every = [event for entry in analysis.entries for event in events(entry.tree) if isinstance(event, Event)]
    (reduced,) = (event for event in every if event.api.endswith("all_reduce"))
    return memory.on_host(analysis.machine, reduced.arguments["tensor"]) is not None


@pytest.mark.parametrize("code", [*ON_HOST, *ELSEWHERE])
def test_torch_agrees(code: str) -> None:
    torch = pytest.importorskip("torch")
    names: dict[str, Any] = {"torch": torch, "sys": SimpleNamespace(argv=["train.py"])}
    exec(code, names)  # noqa: S102 - the code is that of this file
    assert (names["x"].device.type == "cpu") is (code in ON_HOST)


@pytest.mark.parametrize("code", ON_HOST)
def test_what_lies_on_the_host_is_known(code: str) -> None:
    assert is_believed(code)


@pytest.mark.parametrize("code", ELSEWHERE)
def test_of_what_may_lie_elsewhere_nothing_is_said(code: str) -> None:
    assert not is_believed(code)
