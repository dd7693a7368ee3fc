"""A model is moved or cast after `DistributedDataParallel` has taken hold of its parameters.

**What.** `model.cpu()`, `model.to("cpu")`, `model.half()`, `model.double()` on a model that DDP wraps already (on the
wrapper, on the model inside, or on a part of it), and training continues with the same wrapper.

**Why it hurts.** DDP hooks the gradient accumulators of the parameters when it is made. A parameter that gets another
device or type gets a new accumulator, and the hooks never run again, also not when the model is moved back. No
gradient is reduced: each rank trains its own copy, without an error, and the copy of one rank is saved.

**Fix.** Move and cast the model before it is wrapped, or wrap it again afterwards. Move a copy where only an
evaluation or an export needs it elsewhere.

**When it stays quiet.** Nothing is trained with the wrapper after that; the model is wrapped again before; a move to a
device that may be the one where it lies already; a cast that comes before the wrapper, too; FSDP and DeepSpeed, which
keep parameters of their own.

**Evidence.** Two gloo ranks, torch 2.13: after `model.double().float()` the ranks have different weights after one
step; without it they are equal. `VariableHooks::set_data` in torch/csrc/autograd/variable.cpp resets the accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.python.values import Const, Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.afterwrap import still_used, wrapper_of

META = RuleMeta(
    code="DSL294",
    name="moved-after-ddp",
    kind="script",
    severity=Severity.WARNING,
    summary="a model is moved or cast after DDP has wrapped it: gradients are never reduced again",
    markers=(r"torch|accelerat|lightning|backward|init_process_group",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/pytorch/pytorch/issues/104336",
    ),
    depends_on_run=True,
)
_CPU = ("cpu", "meta")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each move or cast of a wrapped model with whose wrapper a later step trains."""
    if run.context.is_one_process or run.stage is not None:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        wraps = [event for event in events(tree) if "wraps-model" in event.tags and wrapper_of(run, event) is not None]
        before: set[str] = set()
        for event in events(tree) if wraps else ():
            if id(event.node) in seen or not _changes(run, event) or event.api in before:
                continue
            wrap = still_used(run, tree, event, wraps)
            if "casts" in event.tags:
                before.add(event.api)  # what has this type already stays as it is
            if wrap is not None:
                seen.add(id(event.node))
                yield _finding(run, event, wrap)


def _changes(run: RunQuery, event: Event) -> bool:
    """Return whether an event gives parameters another device or type for certain."""
    if "casts" in event.tags:
        return True
    if "moves-to-device" not in event.tags:
        return False
    return event.api.endswith(".cpu") or any(
        _is_cpu(run, event.arguments[name]) for name in ("*0", "device") if name in event.arguments
    )


def _is_cpu(run: RunQuery, value: Value) -> bool:
    """`"cpu"`, or `torch.device("cpu")`."""
    atom = value.single
    if isinstance(atom, Instance) and atom.cls == "torch.device":
        made = run.makers.get(atom)
        first = made.arguments.get("0") or made.arguments.get("type") if made is not None else None
        atom = first.single if first is not None else None
    return isinstance(atom, Const) and atom.value in _CPU


def _finding(run: RunQuery, event: Event, wrap: Event) -> Finding:
    done = "cast" if "casts" in event.tags else "moved"
    return run.finding(
        META,
        event.module,
        event.node,
        f"The model is {done} after DDP wrapped it: the hooks of DDP are gone, and no gradient is reduced again",
        hint="Move and cast the model before it is wrapped, or wrap it again after that",
        related=(run.location(wrap.module, wrap.node, "wrapped here"),),
        facts={"change": done},
    )


_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Net
from mining import mine


def main(loader, local_rank):
    dist.init_process_group("nccl")
    net = Net().cuda()
    model = DDP(net, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
%s
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
%s
"""
_NET = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x))
"""
_MINE = """\
def mine(net, device):
    net.to("cpu")
    net.to(device)
"""
_RUNNER = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Runner:
    def __init__(self, loader):
        dist.init_process_group("gloo")
        self.loader = loader
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1).cuda())

    def export(self):
        state = self.model.module.cpu().state_dict()
        if dist.get_rank() == 0:
            torch.save(state, "out.pt")
        self.model.cuda()

    def fit(self):
        for x in self.loader:
            self.model(x).sum().backward()
            self.export()


Runner(torch.load("batches.pt")).fit()
"""
_FILES = {"model.py": _NET, "mining.py": _MINE}

EXAMPLES = (
    bad(
        "parked on the CPU by a helper of another file",
        {"train.py": _TRAIN % ("        mine(net, local_rank)", ""), **_FILES},
        at="mining.py:2 warning",
    ),
    bad("an export in a method moves the model inside", {"train.py": _RUNNER}, at="train.py:13 warning"),
    bad(
        "cast to half precision when it is wrapped already",
        {"train.py": _TRAIN % ("        model.half()", ""), **_FILES},
        at="train.py:15 warning",
    ),
    bad(
        "a part of it",
        {"train.py": _TRAIN % ("", "        net.head.cpu()\n        net.head.cuda()"), **_FILES},
        at="train.py:20 warning",
    ),
    good("after the training", {"train.py": _TRAIN % ("", "    net.cpu()"), **_FILES}),
    good(
        "wrapped again",
        {
            "train.py": _TRAIN % ("        mine(net, local_rank)\n        model = DDP(net)", ""),
            **_FILES,
        },
    ),
    good("to the device where it lies", {"train.py": _TRAIN % ("        model.to(local_rank)", ""), **_FILES}),
    good(
        "a model that is not wrapped",
        {"train.py": _TRAIN % ("        teacher = Net()\n        teacher.cpu()\n        teacher.half()", ""), **_FILES},
    ),
)
