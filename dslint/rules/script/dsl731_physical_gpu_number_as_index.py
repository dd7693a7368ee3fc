"""The index of a device is taken out of the text of `CUDA_VISIBLE_DEVICES`.

**What.** `int(os.environ["CUDA_VISIBLE_DEVICES"].split(",")[local_rank])`, or another number of that list, comes to
`torch.cuda.set_device`, `torch.device("cuda", n)`, `device_ids=` or `.to(f"cuda:{n}")`.

**Why it hurts.** The variable names the GPUs of the machine, and CUDA counts those that it shows from 0. With
`CUDA_VISIBLE_DEVICES=4,5,6,7` there are `cuda:0` to `cuda:3`: asking for `cuda:4` raises `invalid device ordinal`. With
`2,3,0,1` the ranks meet on other cards than they think, and a list of UUIDs has no number at all.

**Fix.** The index among the visible ones: `LOCAL_RANK`, or `range(torch.cuda.device_count())`.

**When it stays quiet.** A length or a place in that list (`len(...)`, `.index(...)`, `enumerate`); numbers for other
programs (`nvidia-smi`, NVML, a variable for a child process); a run whose command or script shows GPUs that count up
from 0; code that removes the variable before CUDA starts.

**Evidence.** CUDA C++ Programming Guide, "CUDA Environment Variables": the visible devices are enumerated from 0 in the
order of the variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.values import Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import DEVICE_TAGS, choices
from dslint.rules.ranks.physical import physical_number
from dslint.rules.ranks.visible import VARIABLE, variable_of
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL731",
    name="physical-gpu-number-as-index",
    kind="script",
    severity=Severity.WARNING,
    summary="a device gets its number out of CUDA_VISIBLE_DEVICES, and CUDA counts the visible GPUs from 0",
    markers=(r"(?:environ(?:\.get)?|getenv)[\[(]\s*[\"']CUDA_VISIBLE_DEVICES",),
    references=(
        "https://github.com/plemeri/InSPyReNet/pull/6",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables",
    ),
    depends_on_run=True,
    no_experiment="it takes a machine with several GPUs; CUDA's guide says how it counts them",
)
_REMOVES = re.compile(r"(?:environ\.pop\(|del os\.environ\[|unsetenv\()\s*[\"']CUDA_VISIBLE_DEVICES")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each reading of the variable whose numbers choose a device."""
    modules = run.machine.program.modules()
    readers = [module for module in modules if VARIABLE in module.code]
    if not readers or any(module.search(_REMOVES) for module in readers) or _counts_up(run):
        return
    told: set[int] = set()
    for found in run.happenings(*DEVICE_TAGS, "replicates-model"):
        event = found.event
        for _, node in choices(event):
            if node is event.node:
                continue
            read = physical_number(run.derived, event.module, node)
            if read is not None and id(read[1]) not in told:
                told.add(id(read[1]))
                yield run.finding(
                    META,
                    *read,
                    f"A number of `{VARIABLE}` becomes a device index, but CUDA counts the visible GPUs from 0",
                    hint="Take the local rank, or count from 0 to `torch.cuda.device_count()`",
                    related=(run.location(event.module, event.node, "chooses a device by it"),),
                )


def _counts_up(run: RunQuery) -> bool:
    """Return whether the command or the script certainly shows the first GPUs in their order."""
    launch = run.machine.launch
    stated = launch.environment.get(VARIABLE) if launch is not None else None
    written = [h.event for h in run.happenings("sets-environment") if variable_of(h.event) == VARIABLE]
    shown: list[object] = [stated] if stated is not None else []
    shown += [_only(event.arguments["value"]) for event in written]
    return bool(shown) and all(text is not None and _is_first(str(text)) for text in shown)


def _only(value: Value) -> object:
    return value.constants[0] if value.constants is not None and len(value.constants) == 1 else None


def _is_first(text: str) -> bool:
    return [word.strip() for word in text.split(",")] == [str(at) for at in range(text.count(",") + 1)]


_SCRIPT = """\
import os

import torch
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])
%s
dist.init_process_group("nccl")
"""
_LINE = 'gpu = int(os.environ["CUDA_VISIBLE_DEVICES"].split(",")[local_rank])\n'
_CLASS = """\
import os

import torch


class Setup:
    def __init__(self):
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible:
            self.gpu = int(visible.split(",")[self.local_rank])
        else:
            self.gpu = self.local_rank
        self.device = torch.device("cuda", self.gpu)
"""
_USES = "from setup import Setup\n\nplace = Setup()\ntorch.cuda.set_device(place.device)"
_LIST = 'gpus = [int(x) for x in os.getenv("CUDA_VISIBLE_DEVICES", "0").split(",")]\n'
_FUNCTION = """\
import os


def visible():
    return list(map(int, os.environ["CUDA_VISIBLE_DEVICES"].split(",")))


def device_of(rank):
    return "cuda:" + str(visible()[rank])
"""

EXAMPLES = (
    bad("a number of the list", {"train.py": _SCRIPT % (_LINE + "torch.cuda.set_device(gpu)")}, "train.py:7"),
    bad("the name of a device", {"train.py": _SCRIPT % (_LINE + 'torch.zeros(1).to(f"cuda:{gpu}")')}, "train.py:7"),
    bad(
        "all numbers",
        {"train.py": _SCRIPT % (_LIST + "torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=gpus)")},
        "train.py:7",
    ),
    bad("a field of another file", {"train.py": _SCRIPT % _USES, "setup.py": _CLASS}, "setup.py:9"),
    bad(
        "functions of another file",
        {
            "train.py": _SCRIPT % "from gpus import device_of\n\ntorch.cuda.set_device(device_of(local_rank))",
            "gpus.py": _FUNCTION,
        },
        "gpus.py:5",
    ),
    good("the local rank", {"train.py": _SCRIPT % (_LIST + "torch.cuda.set_device(local_rank)\nprint(gpus)")}),
    good(
        "how many there are",
        {"train.py": _SCRIPT % (_LIST + "torch.cuda.set_device(local_rank % len(gpus))")},
    ),
    good(
        "a place in the list", {"train.py": _SCRIPT % (_LIST + "torch.cuda.set_device(gpus.index(gpus[local_rank]))")}
    ),
    good(
        "the command shows them from 0",
        {
            "train.py": _SCRIPT % (_LINE + "torch.cuda.set_device(gpu)"),
            "run.sh": "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py\n",
        },
    ),
    bad(
        "the command shows others",
        {
            "train.py": _SCRIPT % (_LINE + "torch.cuda.set_device(gpu)"),
            "run.sh": "CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node 2 train.py\n",
        },
        "train.py:7",
    ),
    good(
        "for another program",
        {"train.py": _SCRIPT % (_LINE + 'os.system(f"nvidia-smi -i {gpu}")\ntorch.cuda.set_device(local_rank)')},
    ),
)
