"""A part with synchronised batch normalisation runs only on the ranks whose own data says so.

**What.** Batch normalisation is converted (`SyncBatchNorm.convert_sync_batchnorm(model)`), or is `SyncBatchNorm` from
the start, and a test of each rank's own batch decides in `forward` whether the part around it runs: `if keep.sum() <
2: return loss`, `if boxes.numel() == 0`.

**Why it hurts.** In training every such layer gathers its statistics from all ranks in the *forward* pass. A rank that
skips the part is in its backward pass already while the others wait in the layer: `Detected mismatch between
collectives on ranks`, or all of them wait with busy GPUs. `find_unused_parameters=True` does not help, since it is
about gradients only.

**Fix.** Run the part on every rank, on zeros where there is nothing; or leave its batch normalisation as it is
(plain, or `GroupNorm`): without a collective in the forward pass `find_unused_parameters=True` suffices.

**When it stays quiet.** A part without batch normalisation; a model that is not converted, or only on
request; DDP without
`find_unused_parameters=True`, which DSL280 tells; a test that dslint cannot tell to differ between ranks; evaluation.

**Evidence.** `torch.nn.modules._functions.SyncBatchNorm` of torch 2.13: `all_gather` in the forward pass. It needs
GPUs, and refuses tensors of the CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event, Loop, events
from dslint.python.queries.skipped import Skipped, skipped_parts
from dslint.python.values import Instance
from dslint.python.varies import DATA
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL718",
    name="synced-norm-skipped-by-own-data",
    kind="script",
    severity=Severity.WARNING,
    summary="a part with SyncBatchNorm runs only on ranks whose own data says so: the others wait in its forward pass",
    markers=(r"SyncBatchNorm|sync_batchnorm|SyncBN", r"DistributedDataParallel|DDP"),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html",),
    depends_on_run=True,
    no_experiment="SyncBatchNorm takes tensors of GPUs only; DSL204 shows a collective that one rank leaves out",
)
_SYNCED = "torch.nn.SyncBatchNorm"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each test of the own data that skips a layer which waits for the other ranks."""
    if run.context.is_one_process:
        return
    conversions = [found.event for found in run.happenings("converts-sync-batch-norm") if _is_likely(run, found)]
    converted = {atom for event in conversions for value in event.arguments.values() for atom in instances(value)}
    seen: set[int] = set()
    for _, tree in run.trees():
        for wrapper, found in skipped_parts(tree):
            made = _maker(run, wrapper)
            if made is None or id(found.test.node) in seen or not found.test.varies & DATA:
                continue
            is_converted = bool(converted & set(instances(made.arguments.get("module"))))
            part = next((p for p in found.parts or (found.part,) if _waits(p, made, is_converted)), None)
            if part is not None:
                seen.add(id(found.test.node))
                yield _finding(run, found, part, (wrapper, *(conversions if is_converted else ())))


def _is_likely(run: RunQuery, found: Happening) -> bool:
    """Return whether no test around an event goes the other way by default: `if args.sync_bn:` with `False`."""
    for test in found.around:
        answers = run.likely(test.test) if isinstance(test, Alt) else None
        if isinstance(test, Alt) and answers is not None:
            holds = any(event is found.event for event in events(test.then))
            if not any(bool(answer) is holds for answer in answers):
                return False
    return True


def _maker(run: RunQuery, wrapper: Event) -> Event | None:
    """Return what made a DDP that takes part for what was not used; else its backward pass waits, too (DSL280)."""
    receiver = wrapper.receiver.single if wrapper.receiver is not None else None
    made = run.makers.get(receiver) if isinstance(receiver, Instance) else None
    unused = made.arguments.get("find_unused_parameters") if made is not None else None
    is_ddp = "ddp-forward" in wrapper.tags and unused is not None and unused.constants != (False,)
    return made if is_ddp else None


def _waits(part: Event, made: Event, is_converted: bool) -> bool:
    """Return whether a part is a layer that gathers its statistics, or a sequence whose code holds one."""
    for atom in instances(part.receiver):
        within = {id(node) for node in ast.walk(atom.node)}
        layers = [atom, *(layer for layer in made.modules if id(layer.node) in within)]
        if any(_is_synced(layer, is_converted) for layer in layers):
            return True
    return False


def _is_synced(layer: Instance, is_converted: bool) -> bool:
    is_norm = isinstance(layer.cls, str) and layer.cls.startswith("torch.nn.BatchNorm")
    return layer.cls == _SYNCED or (is_norm and is_converted)


def _finding(run: RunQuery, found: Skipped, part: Event, behind: tuple[Event, ...]) -> Finding:
    test = found.test
    value = test.subject if isinstance(test, Loop) else test.test
    name = run.text(part.module, getattr(part.node, "func", part.node), 30)
    return run.finding(
        META,
        test.module,
        test.node,
        f"Each rank's own batch decides whether `{name}` runs: its SyncBatchNorm waits there for ranks that skip it",
        hint="Run it on every rank, on zeros where there is nothing, or do not convert this part",
        related=(
            run.location(part.module, part.node, "runs on some ranks only"),
            run.location(behind[0].module, behind[0].node, "the forward pass of the wrapped model"),
            *(run.location(event.module, event.node, "converted here") for event in behind[1:2]),
        ),
        varies=test.varies,
        origin=run.machine.origin(value) if value is not None else None,
    )


_TEXT = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(8, 8)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.%s(8), nn.ReLU())

    def forward(self, points):
        hidden = self.trunk(points)
        keep = hidden.mean(-1) > 0
        %s
        return hidden.sum() + self.head(hidden[keep]).sum()


def main(points):
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    net = Net().cuda(device)
    %s
    model = DistributedDataParallel(net, device_ids=[device], find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(points, 4, sampler=DistributedSampler(points, shuffle=False)):
        model(batch.cuda(device)).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(torch.load("points.pt"))
"""
_LEAVES = "if int(keep.sum()) < 2:\n            return hidden.sum()"
_CONVERTS = "net = nn.SyncBatchNorm.convert_sync_batchnorm(net)"

EXAMPLES = (
    bad("a converted layer behind a return", {"train.py": _TEXT % ("BatchNorm1d", _LEAVES, _CONVERTS)}, "train.py:19"),
    bad("synchronised from the start", {"train.py": _TEXT % ("SyncBatchNorm", _LEAVES, "net.train()")}, "train.py:19"),
    good("converted on request", {
        "train.py": _TEXT.replace("(points):\n    dist", "(points, sync=False):\n    dist")
        % ("BatchNorm1d", _LEAVES, f"if sync:\n        {_CONVERTS}")}),
    good("not converted", {"train.py": _TEXT % ("BatchNorm1d", _LEAVES, "net.train()")}),
    good("another norm", {"train.py": _TEXT % ("LayerNorm", _LEAVES, _CONVERTS)}),
    good("it runs on every rank", {
        "train.py": _TEXT % ("BatchNorm1d", "keep[:2] = True", _CONVERTS)}),
    good("one process", {"train.py": _TEXT % ("BatchNorm1d", _LEAVES, _CONVERTS)}, world_size=1),
)  # fmt: skip
