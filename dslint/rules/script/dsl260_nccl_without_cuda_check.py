"""**What.** The backend of the process group is the literal `"nccl"`, and the file never asks whether there is a GPU.

**Why it hurts.** The script cannot run on the CPU, not even for a test on two processes: `init_process_group` raises.

**Fix.** `backend="nccl" if torch.cuda.is_available() else "gloo"`, or no backend: torch then takes one for each device.

**When it stays quiet.** The rule is off unless it is selected. `is_available`, an accelerator of DeepSpeed or
accelerate, or a device count is requested anywhere in the file; the backend comes from elsewhere.

**Evidence.** Two processes without a GPU: `init_process_group("nccl")` raises on both (`Distributed package doesn't
have NCCL built in` or `ProcessGroupNCCL is only supported with GPUs`); with `"gloo"` it passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event, walk
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import written
from dslint.rules.ranks.groups import backend_name, backend_of
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL260",
    name="nccl-without-cuda-check",
    kind="script",
    severity=Severity.INFO,
    summary="The backend is `nccl`, with or without a GPU",
    markers=(r"init_process_group|init_distributed", r"nccl"),
    references=("https://pytorch.org/docs/stable/distributed.html#which-backend-to-use",),
    depends_on_run=True,
    optional=True,
)
_ASKS = re.compile(r"is_available|device_count|get_accelerator|is_cuda_available|is_torch_npu_available")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first group whose backend is `nccl`, where nothing in the code of the run asks for a GPU."""
    for found in run.happenings("starts-group"):
        event = found.event
        backend = None if event.open or event.may else backend_of(run, event)
        if backend is None or backend.constants != ("nccl",):
            continue
        nodes = (node for node in walk(found.entry.tree) if isinstance(node, Event | Call | Alt))
        modules = {id(m): m for m in (found.entry.module, *(node.module for node in nodes))}
        if not any(module.search(_ASKS) for module in modules.values()):
            yield run.finding(
                META,
                event.module,
                written(event, backend_name(run, event)),
                "the backend is `nccl` with or without a GPU: where there is none the process group cannot be made",
                hint='Write `"nccl" if torch.cuda.is_available() else "gloo"`',
            )
            return


EXAMPLES = (
    bad(
        "a literal",
        {"train.py": "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"},
        at="train.py:3 info",
        select="DSL260",
    ),
    bad(
        "through variables and another name",
        {
            "train.py": (
                "from torch.distributed import init_process_group as start\n\nOPTIONS = {'backend': 'nccl'}\n"
                "start(**OPTIONS)\n"
            )
        },
        at="train.py:3 info",
        select="DSL260",
    ),
    good(
        "it is asked for",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n\n"
                "if not torch.cuda.is_available():\n    raise SystemExit\n"
                "dist.init_process_group('nccl')\n"
            )
        },
        select="DSL260",
    ),
    good(
        "the backend comes from the caller",
        {
            "train.py": (
                "import torch.distributed as dist\n\n\n"
                "def start(backend='nccl'):\n    dist.init_process_group(backend)\n"
            )
        },
        select="DSL260",
    ),
)
