"""Gradients are averaged by hand, and nothing has made the first weights of the replicas equal.

**What.** A script reduces `parameter.grad` over the ranks by itself, steps an optimizer, and its model was drawn by
each rank alone: no wrapper, no `broadcast`, no checkpoint, and no seed, or one that holds the rank
(`torch.manual_seed(seed + rank)`).

**Why it hurts.** Equal gradients keep equal weights equal; weights that begin apart stay apart forever. Each rank's
gradient is that of another model, and their mean is the gradient of none. Nothing fails; the loss falls slowly, and the
checkpoint is the model of rank 0. `DistributedDataParallel` sends the weights of rank 0 when it is made.

**Fix.** `dist.broadcast(parameter.data, src=0)` for each parameter and buffer after the model is made, the same seed on
all ranks before it, or `DistributedDataParallel`.

**When it stays quiet.** Any word of broadcasting, seeding alike, loading or pretrained weights in the project; a
wrapper or an engine; one process; weights that are drawn on a GPU, whose generator begins alike everywhere.

**Evidence.** Two gloo ranks, torch 2.13: after three averaged steps the weights of the ranks differ; with a broadcast
first, or the same seed, they are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.varies import RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import all_come
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.ddps import reduces_gradients

META = RuleMeta(
    code="DSL690",
    name="replicas-begin-apart",
    kind="script",
    severity=Severity.WARNING,
    summary="gradients are averaged by hand, and each rank has drawn first weights of its own",
    markers=(r"\ball_?reduce|\breduce", r"grad"),
    references=(
        "https://pytorch.org/tutorials/intermediate/dist_tuto.html",
        "DistributedDataParallel.__init__ in torch/nn/parallel/distributed.py: _sync_module_states",
    ),
    depends_on_run=True,
)
_WRAPPED = ("wraps-model", "prepares", "makes-engine", "trainer-train", "loads-state-dict", "loads-model", "compiles")
_MADE_EQUAL = re.compile(
    r"broadcast|sync_(?:param|module|weight|model)|load_state_dict|from_pretrained|torch\.load|load_file|state_dict\("
    r"|scatter|hvd|horovod|pretrained=True|nn\.init\.(?:zeros|ones|constant)_|share_memory|device=[\"']cuda|set_default_device"
)
_SEEDS = re.compile(r"\w*seed\w*\(", re.I)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the seed that holds the rank, else on the first collective that gets gradients."""
    if run.context.is_one_process or run.has(*_WRAPPED) or not run.has("backward", "optimizer-step"):
        return
    reduced = [h for h in run.happenings("collective") if reduces_gradients(h.event) and all_come(run, h)]
    if not reduced or any(module.search(_MADE_EQUAL) for module in run.machine.program.modules()):
        return
    seeds = list(run.happenings("seeds"))
    own = [found for found in seeds if any(bits & RANKED for bits, *_ in found.event.snapshot.values())]
    has_words = any(module.search(_SEEDS) for module in run.machine.program.modules())
    if (seeds and len(own) != len(seeds)) or (has_words and not seeds):
        return
    place, why = (own[0], "the seed holds the rank") if own else (reduced[0], "nothing seeds the ranks alike")
    yield run.finding(
        META,
        place.event.module,
        place.event.node,
        f"gradients are averaged by hand, and {why}: replicas begin with other weights, and stay apart",
        hint="Broadcast the weights of rank 0 after the model is made, or use `DistributedDataParallel`",
        related=(run.location(reduced[0].event.module, reduced[0].event.node, "gradients are averaged here"),),
    )


_SCRIPT = """\
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.data, op=dist.ReduceOp.SUM)
        parameter.grad.data /= dist.get_world_size()


def main(rows):
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
%s    model = torch.nn.Linear(8, 1).cuda()
%s    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x.cuda()).square().mean().backward()
            average(model)
            optimizer.step()


main([torch.ones(8)] * 64)
"""
_OWN = "    torch.manual_seed(7 + dist.get_rank())\n"
_SAME = "    torch.manual_seed(7)\n"
_SENT = "    for weight in model.parameters():\n        dist.broadcast(weight.data, src=0)\n"
_CLASS = """\
import torch
import torch.distributed as dist


class Learner:
    def __init__(self):
        dist.init_process_group("gloo")
        self.net = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def step(self, x):
        self.optimizer.zero_grad()
        self.net(x).mean().backward()
        for weight in self.net.parameters():
            dist.all_reduce(weight.grad)
            weight.grad.div_(dist.get_world_size())
        self.optimizer.step()


learner = Learner()
for x in [torch.ones(4)] * 8:
    learner.step(x)
"""

EXAMPLES = (
    bad("nothing is seeded", {"train.py": _SCRIPT % ("", "")}, at="train.py:10 warning"),
    bad("the seed holds the rank", {"train.py": _SCRIPT % (_OWN, "")}, at="train.py:18"),
    bad("a class", {"learn.py": _CLASS}, at="learn.py:15"),
    good("the same seed", {"train.py": _SCRIPT % (_SAME, "")}),
    good("rank 0 sends its weights", {"train.py": _SCRIPT % (_OWN, _SENT)}),
    good("one process", {"train.py": _SCRIPT % ("", "")}, world_size=1),
)
