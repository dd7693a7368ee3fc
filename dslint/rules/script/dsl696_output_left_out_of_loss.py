"""A branch of a DDP model takes no part in the loss where a rank's batch has nothing for it.

**What.** The model gives several outputs, each of a layer of its own. The loss begins with a fresh zero for one of them
and takes the output only under a test of the batch: `loss_box = torch.zeros(())`, `if len(targets): loss_box = ...`.

**Why it hurts.** The branch has run, so DDP waits for the gradients of its parameters. On a rank whose batch has no
object they never come. Its next forward raises `Expected to have finished reduction in the prior iteration`, and the
other ranks wait in their `all_reduce`. It needs one empty batch on one rank, often after hours.

**Fix.** Let the zero depend on the output: `loss_box = boxes.sum() * 0.0`.

**When it stays quiet.** The output is used elsewhere in the loss; the zero is made of it; the test has another side;
the layer gives another output, too; the outputs come as one object; `find_unused_parameters=True`, where DDP gives
zeros for outputs that a loss leaves out; another wrapper than DDP.

**Evidence.** Two gloo ranks, torch 2.13: the rank without objects raises in its second forward; with a zero that is
made of the output, or with `find_unused_parameters=True`, both continue.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.droppedoutputs import dropped_outputs

META = RuleMeta(
    code="DSL696",
    name="output-left-out-of-loss",
    kind="script",
    severity=Severity.WARNING,
    summary="a branch of a DDP model gets no gradient on a rank whose batch has nothing for it",
    markers=(r"DistributedDataParallel|DDP", r"backward\("),
    references=("https://github.com/ultralytics/ultralytics/pull/26012",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each test of a batch that leaves an output of the model out of the loss."""
    if run.context.is_one_process or not run.has("backward"):
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        for found in dropped_outputs(run, tree):
            if id(found.test) in seen:
                continue
            seen.add(id(found.test))
            yield run.finding(
                META,
                found.module,
                found.zero,
                f"without items in the batch, `{found.output}` is not in the loss: DDP waits for the gradients of its"
                " layers",
                hint=f"Let the zero depend on the output: `{found.output}.sum() * 0.0`",
                related=(
                    run.location(found.module, found.test, "each rank's own batch decides"),
                    run.location(found.forward.module, found.forward.node, "the model gives it"),
                ),
            )


_TRAIN = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from net import Detector


class Criterion:
    def __call__(self, scores, boxes, targets):
        loss_cls = F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
        loss_box = %s
        if %s:
            loss_box = F.l1_loss(boxes[targets[:, 0].long()], targets[:, 1:])%s
        return loss_cls + 2.0 * loss_box


def main(loader, rank):
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)
    model = DDP(Detector().cuda(), device_ids=[rank])
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.1), Criterion()
    for images, targets in loader:
        optimizer.zero_grad()
        scores, boxes = model(images.cuda())
        criterion(scores, boxes, targets.cuda()).backward()
        optimizer.step()
"""
_NET = """\
import torch


class Detector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.cls_branch, self.box_branch = (torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        features = self.trunk(x)
        %s
"""
_HERE = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from net import Detector

dist.init_process_group("gloo")
model = DDP(Detector())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(loader):
    for images, labels, masks in loader:
        optimizer.zero_grad()
        logits, extra = model(images)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        extra_loss = 0.0
        if masks.any():
            extra_loss = (extra[masks] - 1).square().mean()
        (loss + extra_loss).backward()
        optimizer.step()
"""
_BRANCHES = "return self.cls_branch(features), self.box_branch(features).sigmoid()"
_SHARED = "both = self.box_branch(features)\n        return both[:, :4], both[:, 4:]"
_FRESH = "torch.zeros((), device=scores.device)"

EXAMPLES = (
    bad("a criterion", {"train.py": _TRAIN % (_FRESH, "len(targets)", ""), "net.py": _NET % _BRANCHES},
        "train.py:12 warning"),
    bad("a number of positives", {
        "train.py": _TRAIN % ("scores.new_zeros(1)", "targets.numel() > 0", ""), "net.py": _NET % _BRANCHES},
        "train.py:12 warning"),
    bad("in the loop itself", {"train.py": _HERE, "net.py": _NET % _BRANCHES}, "train.py:17 warning"),
    good("a zero of the output", {
        "train.py": _TRAIN % ("boxes.sum() * 0.0", "len(targets)", ""), "net.py": _NET % _BRANCHES}),
    good("the other side uses it", {
        "train.py": _TRAIN % (_FRESH, "len(targets)", "\n        else:\n            loss_box = 0.0 * boxes.sum()"),
        "net.py": _NET % _BRANCHES}),
    good("DDP looks for unused parameters", {"train.py": (_TRAIN % (_FRESH, "len(targets)", "")).replace(
        "device_ids=[rank]", "device_ids=[rank], find_unused_parameters=True"), "net.py": _NET % _BRANCHES}),
    good("one layer gives both", {"train.py": _TRAIN % (_FRESH, "len(targets)", ""), "net.py": _NET % _SHARED}),
)  # fmt: skip
