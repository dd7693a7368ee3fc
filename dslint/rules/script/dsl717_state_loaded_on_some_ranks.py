"""Only some ranks restore the state with which they train, and nothing sends it to the others.

**What.** On resuming, `optimizer.load_state_dict(...)` (or that of a learning-rate schedule) is under a test of the
rank, or where only rank 0 has found a checkpoint. No broadcast of that state follows.

**Why it hurts.** Data-parallel replicas stay equal since each makes the same step: from the same gradients, with the
same momentum and the same learning rate. After such a restart rank 0 steps with the restored momentum and the others
without. From the first step on the replicas hold different weights, and averaged gradients bring them never together
again. Nothing fails, and what is saved is rank 0's.

**Fix.** Load it on every rank (`map_location` puts it there), or send it: `hvd.broadcast_optimizer_state(optimizer,
root_rank=0)`, or `dist.broadcast_object_list([state])` and then `load_state_dict` on all ranks.

**When it stays quiet.** Something of the optimizer is broadcast; weights, which DSL232 tells; every rank loads the
state, by the other side of the test; FSDP and ZeRO, whose ranks have states of their own; nothing that averages
gradients; which ranks come there is not certain.

**Evidence.** Two gloo ranks, torch 2.13: with the momentum restored on rank 0 only, the weights of the ranks differ
after one step; restored on both they are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Loop, events
from dslint.python.queries.arms import other_arms
from dslint.python.varies import DIVERGENT, HOST, LOST, RANKED, UNSURE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL717",
    name="state-loaded-on-some-ranks",
    kind="script",
    severity=Severity.WARNING,
    summary="only some ranks restore the state of the optimizer: the replicas make different steps",
    markers=(r"load_state_dict\(", r"DistributedDataParallel|DDP|horovod|accelerat"),
    references=("https://github.com/horovod/horovod/issues/936",),
    depends_on_run=True,
)
_KINDS = {"optimizer": "the state of this optimizer", "scheduler": "the state of this learning-rate schedule"}
# Who speaks of sending states may do so in a way that cannot be followed.
_SENDS = re.compile(
    r"broadcast_object\w*\([^\n]*(?:\w*state|ckpt|check|opt|payload|blob|resume)|broadcast\w*\([^\n]*(?:opt|sched)"
    r"|scatter_full_optim|sync_(?:optim|state)"
)
_SPLITS = re.compile(r"ZeroRedundancyOptimizer|fully_shard|FullyShardedDataParallel|FSDP")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each state that some ranks load for themselves."""
    if run.context.is_one_process or run.stage is not None or run.is_fsdp or not run.has("backward"):
        return
    if not run.has("wraps-model", "wraps-optimizer", "prepares") or _is_sent(run):
        return
    loads = list(run.happenings("loads-state-dict"))
    for found in loads:
        what = _what(run, found)
        if not what or not _is_on_some(run, found) or _others_load(run, found, loads):
            continue
        yield run.finding(
            META,
            found.event.module,
            found.event.node,
            f"Only some ranks load {what}, and nothing sends it to the others: the replicas make different steps",
            hint="Load it on every rank, or broadcast it",
            related=tuple(run.location(test.module, test.node, "not all ranks come here") for test in _tests(found)),
            varies=found.event.varies,
        )


def _what(run: RunQuery, found: Happening) -> str:
    """Return what is loaded, when replicas must have it alike."""
    libraries = run.machine.libraries
    atoms = instances(found.event.receiver)
    for kind, told in _KINDS.items():
        if atoms and all(isinstance(a.cls, str) and libraries.is_class(a.cls, kind) for a in atoms):
            return told
    return ""


def _is_on_some(run: RunQuery, found: Happening) -> bool:
    """Return whether some ranks come there and others do not, by their ranks."""
    event = found.event
    if event.may or event.varies & (LOST | UNSURE) or any(isinstance(node, Loop) for node in found.around):
        return False
    if event.varies & DIVERGENT & ~(RANKED | HOST):
        return False
    is_parted = any(0 < sum(event.lanes >> lane & 1 for lane in g) < len(g) for g in run.machine.worlds.groups)
    return is_parted or bool(event.varies & RANKED)


def _others_load(run: RunQuery, found: Happening, loads: list[Happening]) -> bool:
    """Return whether the same object is loaded elsewhere, too: by the other ranks."""
    mine = set(instances(found.event.receiver))
    others = [f for f in loads if f.event is not found.event and mine & set(instances(f.event.receiver))]
    return any(not _is_on_some(run, other) or _exclude(found, other) for other in others)


def _exclude(one: Happening, other: Happening) -> bool:
    """Return whether two events lie on different sides of a test."""
    arms = other_arms(one.entry.tree, one.around, one.event)
    return any(other.event in set(events(arm.alt.orelse if arm.holds else arm.alt.then)) for arm in arms)


def _is_sent(run: RunQuery) -> bool:
    """Return whether something of an optimizer is broadcast, or states are divided among the ranks."""
    kinds = run.machine.libraries
    for found in run.occurrences("collective"):
        if "broadcast_optimizer_state" in found.event.api:
            return True
        if "prepares" in found.event.tags:
            continue  # wraps it before anything is loaded, or after: it sends nothing of its state
        given = [atom.cls for value in found.event.arguments.values() for atom in instances(value)]
        if any(isinstance(cls, str) and kinds.is_class(cls, "optimizer") for cls in given):
            return True
    modules = list(run.machine.program.modules())
    return any(module.search(_SENDS) or module.search(_SPLITS) for module in modules)


def _tests(found: Happening) -> list[Alt]:
    """Return the innermost test of the rank around an event."""
    return [node for node in found.around if isinstance(node, Alt) and node.varies & RANKED][-1:]


_HOROVOD = """\
import horovod.torch as hvd
import torch


def train(net, loader, path):
    hvd.init()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    epoch = 0
    if hvd.rank() == 0:
        state = torch.load(path)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        epoch = state["epoch"]
    epoch = hvd.broadcast_object(epoch, root_rank=0)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    %soptimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    for batch in loader:
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()
"""
_SENT = "hvd.broadcast_optimizer_state(optimizer, root_rank=0)\n    "

_DDP = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, path, rank):
        self.rank, self.path = rank, path
        self.net = net
        %s
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)
        %s

    def restore(self):
        state = torch.load(self.path, map_location="cpu")
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])

    def run(self, loader):
        for batch in loader:
            self.optimizer.zero_grad()
            self.model(batch).mean().backward()
            self.optimizer.step()
            self.schedule.step()


def main(loader, path):
    dist.init_process_group("nccl")
    net = torch.nn.Linear(8, 8).cuda(int(os.environ["LOCAL_RANK"]))
    Trainer(net, path, dist.get_rank()).run(loader)
"""
_WRAP = "self.model = DistributedDataParallel(self.net)"
_FOUND = "if self.rank == 0 and os.path.exists(path):\n            self.restore()"
_ACCELERATE = """\
import torch
from accelerate import Accelerator


class Trainer:
    def __init__(self, net, loader):
        self.accelerator = Accelerator()
        optimizer = torch.optim.Adam(net.parameters())
        self.net, self.optimizer, self.loader = self.accelerator.prepare(net, optimizer, loader)
        self.step = 0

    def load(self, path):
        %s
        state = torch.load(path, map_location="cpu")
        self.accelerator.unwrap_model(self.net).load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def train(self):
        for batch in self.loader:
            self.accelerator.backward(self.net(batch).mean())
            self.optimizer.step()
            self.optimizer.zero_grad()


def main(net, loader):
    trainer = Trainer(net, loader)
    trainer.load("last.pt")
    trainer.train()
"""

EXAMPLES = (
    bad("accelerate, the main process alone", {
        "train.py": _ACCELERATE % "if not self.accelerator.is_main_process:\n            return"}, "train.py:17"),
    good("accelerate, every process", {"train.py": _ACCELERATE % "self.step = 0"}),
    bad("Horovod", {"train.py": _HOROVOD % ""}, "train.py:12"),
    good("Horovod sends the state", {"train.py": _HOROVOD % _SENT}),
    bad("a method that one rank calls", {"train.py": _DDP % (_WRAP, _FOUND)},
        ("train.py:21", "train.py:22")),
    good("every rank loads it", {"train.py": _DDP % (_WRAP, _FOUND.replace("self.rank == 0 and ", ""))}),
    good("nothing averages gradients", {"train.py": _DDP % ("self.model = self.net", _FOUND)}),
    good("one process", {"train.py": _HOROVOD % ""}, world_size=1),
)  # fmt: skip
