"""A layer of the model is replaced by a new one after `DistributedDataParallel` has wrapped the model.

**What.** `model.module.head = nn.Linear(...)`, also in a method of the model (`model.module.expand(10)`), after
`model = DDP(net)`, and training continues with the same wrapper.

**Why it hurts.** DDP takes the parameters when it is made: the gradients of the new layer are never reduced. Its first
weights are those that each rank has drawn. Each rank trains a layer of its own on its own data, and the one of rank 0
is saved. With `find_unused_parameters=True` nothing fails; without it the second step raises `Expected to have finished
reduction`, because the old layer gets no gradient.

**Fix.** Replace the layer first, or wrap the model again afterwards; then make the optimizer anew, too.

**When it stays quiet.** Nothing is trained with the wrapper after that; the model is wrapped again before; what is put
in has no parameters, or nobody knows what it is; FSDP and DeepSpeed.

**Evidence.** Two gloo ranks, torch 2.13: with `find_unused_parameters=True` the new layer has other weights on each
rank after one step; wrapped again it has the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.afterwrap import has_parameters, still_used, wrapper_of

META = RuleMeta(
    code="DSL658",
    name="part-replaced-after-ddp",
    kind="script",
    severity=Severity.WARNING,
    summary="a layer is replaced after DDP has wrapped the model: its gradients are never reduced",
    markers=(r"DistributedDataParallel|DDP", r"backward"),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://discuss.pytorch.org/t/updating-ddp-model-with-new-parameters-during-training/121411",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each layer that is put into a wrapped model with whose wrapper a later step trains."""
    if run.context.is_one_process or run.stage is not None:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        each = list(events(tree))
        wraps = [event for event in each if "wraps-model" in event.tags and wrapper_of(run, event) is not None]
        for event in each if wraps else ():
            if id(event.node) in seen or not _replaces(event):
                continue
            wrap = still_used(run, tree, event, wraps)
            if wrap is not None:
                seen.add(id(event.node))
                yield _finding(run, event, wrap)


def _replaces(event: Event) -> bool:
    """Return whether a call certainly leaves a model with other parameters than those that DDP took."""
    return (
        has_parameters(event)
        if "replaces-part" in event.tags
        else "converts-sync-batch-norm" in event.tags and "replaces-parameters" in event.tags
    )


def _finding(run: RunQuery, event: Event, wrap: Event) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{run.text(event.module, event.node)}` gets a new layer after DDP wrapped the model: its gradients are never"
        " reduced",
        hint="Replace the layer before the model is wrapped, or wrap the model again after that",
        related=(run.location(wrap.module, wrap.node, "wrapped here"),),
    )


_NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def expand(self, count):
        new = nn.Linear(4, self.head.out_features + count).to(self.head.weight.device)
        self.head = new

    def forward(self, x):
        return self.head(self.body(x))
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Net


def main(tasks):
    dist.init_process_group("nccl")
    net = Net().cuda()
%s
    model = DDP(net, find_unused_parameters=True)
    for task, loader in enumerate(tasks):
        if task > 0:
%s
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in loader:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""
_AFTER = "            model.module.expand(10)"

EXAMPLES = (
    bad("a head that grows", {"model.py": _NET, "train.py": _TRAIN % ("    pass", _AFTER)}, "model.py:13 warning"),
    bad(
        "in the script",
        {"model.py": _NET, "train.py": _TRAIN % ("    pass", "            net.head = torch.nn.Linear(4, 9).cuda()")},
        "train.py:15 warning",
    ),
    good("before it is wrapped", {"model.py": _NET, "train.py": _TRAIN % ("    net.expand(10)", "            pass")}),
    good(
        "wrapped again",
        {
            "model.py": _NET,
            "train.py": _TRAIN
            % (
                "    pass",
                "            net.expand(10)\n            model = DDP(net, find_unused_parameters=True)",
            ),
        },
    ),
    good(
        "a part without parameters",
        {"model.py": _NET, "train.py": _TRAIN % ("    pass", "            net.head = torch.nn.Identity()")},
    ),
)
