"""A model is built from a number that differs between ranks, and is wrapped for data-parallel training.

**What.** A mean, a class weight or another number that each rank computes from its own share of the data (or draws
from a generator that nobody seeded) is passed to the constructor of the model that `DistributedDataParallel`,
DeepSpeed, FSDP or accelerate wraps, and stays there as a plain attribute or as an argument of a layer.

**Why it hurts.** The wrapper makes parameters and buffers equal on all ranks, and nothing else. The replicas have equal
weights and compute different functions. Gradients of different functions are averaged, and the checkpoint of rank 0
fits the share of rank 0. Nothing fails.

**Fix.** Compute the number on all ranks together (`all_reduce`, or `broadcast` from rank 0) before the model is built,
or register it as a buffer: `DistributedDataParallel` broadcasts buffers.

**When it stays quiet.** Values that were reduced or broadcast; parameters and buffers; values that differ because of
the rank itself (devices, partitions) or of the files of a machine; attributes that come from a clock or a generator
and do not reach the loss; anything whose origin is not certain; runs of one process.

**Evidence.** Two gloo ranks, torch 2.13: for the same input the replicas give different outputs with equal weights;
with a buffer in place of the attribute they give the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.parts import Part
from dslint.python.values import ClassAtom
from dslint.python.varies import CLOCK, DATA, RANDOM
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL276",
    name="model-built-from-own-data",
    kind="script",
    severity=Severity.WARNING,
    summary="a number that differs between ranks is built into the wrapped model: replicas compute different functions",
    markers=(r"torch|accelerat|deepspeed|lightning",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "DistributedDataParallel._sync_module_states in torch/nn/parallel/distributed.py",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call that wraps a model with such a number in it."""
    if run.context.is_one_process:
        return
    losses = [causes for found in run.happenings("backward") for causes, _, _ in found.event.snapshot.values()]
    seen: set[tuple[int, str]] = set()
    for found in run.happenings("wraps-model", "prepares", "makes-engine"):
        event = found.event
        parts = [p for p in event.parts if _matters(p, losses) and (id(p.model.node), p.name) not in seen]
        if not parts or event.api == "torch.nn.DataParallel":
            continue
        seen |= {(id(part.model.node), part.name) for part in parts}
        first = parts[0]
        places = [run.location(p.origin[0], p.origin[1], f"`{p.name}` comes from here") for p in parts if p.origin]
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{first.name}` of `{_class(first)}` {_cause(first.varies)}: the replicas compute different functions",
            hint="Compute the number on all ranks together, or register it as a buffer",
            related=tuple(dict.fromkeys(places)),
            varies=first.varies,
            origin=first.origin,
        )


def _matters(part: Part, losses: list[int]) -> bool:
    """A time or a random number may be kept for a log: it counts where it reaches the loss."""
    if part.varies & DATA or not part.is_attribute:
        return True
    return any(part.varies & causes & (CLOCK | RANDOM) for causes in losses)


def _class(part: Part) -> str:
    cls = part.model.cls
    return cls.node.name if isinstance(cls, ClassAtom) else cls.rpartition(".")[2]


def _cause(varies: int) -> str:
    if varies & DATA:
        return "comes from each rank's own share of the data"
    return "comes from the clock of each rank" if varies & CLOCK else "differs from rank to rank"


_MODEL = """\
import torch


class Net(torch.nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        %s

    def forward(self, x):
        return self.layer(x - self.mean)


"""
_MAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

%s
def main(train_set, local_rank):
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
    total, count = 0.0, 0
    for x, _ in loader:
        total += x.sum().item()
        count += x.numel()
    mean = %s
    model = DDP(Net(mean).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()
"""
_PLAIN, _BUFFER = "self.mean = mean", 'self.register_buffer("mean", torch.tensor(mean))'
_IN_ONE = _MODEL.removeprefix("import torch\n")
_REDUCED = """\
def everywhere(total, count):
    sums = torch.tensor([total, count], device="cuda")
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


"""

EXAMPLES = (
    bad(
        "the mean of the own share",
        {"train.py": _MAIN % (_IN_ONE % _PLAIN, "total / count")},
        "train.py:28",
    ),
    bad(
        "the model is in another file",
        {"net.py": _MODEL % _PLAIN, "train.py": _MAIN % ("from net import Net\n\n", "total / count")},
        "train.py:18",
    ),
    bad(
        "a random rate of a layer",
        {
            "train.py": (_MAIN % (_IN_ONE % "self.drop = torch.nn.Dropout(mean)", "random.random()"))
            .replace("self.layer(x - self.mean)", "self.drop(self.layer(x))")
            .replace("import torch\n", "import random\n\nimport torch\n", 1),
        },
        "train.py:30",
    ),
    good("a buffer", {"train.py": _MAIN % (_IN_ONE % _BUFFER, "total / count")}),
    good("the mean over all ranks", {"train.py": _MAIN % (_IN_ONE % _PLAIN + _REDUCED, "everywhere(total, count)")}),
    good("a parameter", {"train.py": _MAIN % (_IN_ONE % "self.mean = torch.nn.Parameter(torch.randn(4))", "None")}),
    good(
        "the time of the start is kept for a log",
        {
            "train.py": (_MAIN % (_IN_ONE % "self.started = mean", "time.time()"))
            .replace(" - self.mean", "")
            .replace("import torch\n", "import time\n\nimport torch\n", 1)
        },
    ),
    good("the local rank", {"train.py": (_MAIN % (_IN_ONE % _PLAIN, "local_rank"))}),
    good("one process", {"train.py": _MAIN % (_IN_ONE % _PLAIN, "total / count")}, world_size=1),
)
