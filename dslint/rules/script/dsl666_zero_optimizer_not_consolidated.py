"""The state of a `ZeroRedundancyOptimizer` is requested, and nobody has put it together.

**What.** `optimizer.state_dict()` of a `ZeroRedundancyOptimizer` without a `consolidate_state_dict()` before it, or
with one that only some ranks call; or every rank asks for what was put together on one.

**Why it hurts.** Each rank holds the moments of its own share. `state_dict()` raises on a rank that has not gathered
the others: at the first save, after the first epoch, on rank 0, while the other ranks wait for it in the next
collective. Old releases saved the share of one rank silently.

**Fix.** `optimizer.consolidate_state_dict(to=0)` on every rank, before rank 0 asks for the state.

**When it stays quiet.** A call of `consolidate_state_dict` on all ranks that may come before; an optimizer of which
nobody knows what it is.

**Evidence.** Two gloo ranks, torch 2.13: `state_dict()` on rank 0 raises `Optimizer state has not been consolidated on
this rank`; after `consolidate_state_dict(to=0)` it gives all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks import parted
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL666",
    name="zero-optimizer-not-consolidated",
    kind="script",
    severity=Severity.ERROR,
    summary="the state of a ZeroRedundancyOptimizer is saved and was not put together: `state_dict()` raises",
    markers=(r"ZeroRedundancyOptimizer", r"state_dict"),
    references=(
        "https://docs.pytorch.org/docs/stable/distributed.optim.html",
        "https://github.com/zhijian-liu/torchpack/issues/18",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each state of an optimizer of shares that no call of all ranks has put together."""
    gathers = [found for found in run.occurrences("state-dict-collective") if _of_shares(run, found)]
    whole = [found for found in gathers if not parted.are_some(run, found.event.lanes)]
    seen: set[ast.AST] = set()
    for found in run.occurrences("state-dict"):
        event = found.event
        owners = _of_shares(run, found)
        if not owners or event.may or event.node in seen:
            continue
        if any(owners & _of_shares(run, one) for one in whole) and not _asks_beside(run, found, owners, whole):
            continue
        seen.add(event.node)
        some = [one for one in gathers if owners & _of_shares(run, one)]
        what = "only some ranks call `consolidate_state_dict`" if some else "the shares are not consolidated"
        what = "only one rank has consolidated the shares" if some and some[0] in whole else what
        related = [run.location(one.event.module, one.event.node, "needs every rank") for one in some]
        made = run.makers.get(next(iter(owners)))
        related += [run.location(made.module, made.node, "each rank keeps the state of its share")] if made else []
        yield run.finding(
            META,
            event.module,
            event.node,
            f"{what}: `{run.text(event.module, event.node)}` raises, and the other ranks wait for this one",
            hint="Call `optimizer.consolidate_state_dict(to=0)` on every rank first",
            related=tuple(related),
        )


def _asks_beside(run: RunQuery, found: Happening, owners: frozenset[Instance], whole: list[Happening]) -> bool:
    """Return whether every rank asks for a state that was put together on one of them."""
    mine = [one.event for one in whole if owners & _of_shares(run, one)]
    is_here = all(one.entry is found.entry for one in whole)
    is_one = all(event.arguments["to"].constants is not None for event in mine if "to" in event.arguments)
    return is_here and is_one and found.event.lanes == run.machine.worlds.full


def _of_shares(run: RunQuery, found: Happening) -> frozenset[Instance]:
    """Return the optimizers that are asked, when all of them divide their state among the ranks."""
    owners = instances(found.event.receiver)
    libraries = run.machine.libraries
    is_sure = all(isinstance(a.cls, str) and libraries.method(a.cls, "consolidate_state_dict") for a in owners)
    value = found.event.receiver
    return frozenset(owners) if is_sure and value is not None and len(owners) == len(value.atoms) else frozenset()


_TRAIN = """\
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def save(path, model, optimizer):
    %s
    if dist.get_rank() == 0:
        %s
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    dist.barrier()


def main(loader, path, local_rank):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(8, 8).to(local_rank), device_ids=[local_rank])
    optimizer = %s
    for batch in loader:
        loss = model(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save(path, model, optimizer)
"""
_ZERO = "ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)"
_CALL = "optimizer.consolidate_state_dict(to=0)"
_ALL = (
    (_TRAIN % ("pass", "pass", _ZERO))
    .replace("optimizer.state_dict()", "state")
    .replace("    pass\n", "    %s\n    state = optimizer.state_dict()\n", 1)
)
_CLASS = """\
import torch
from torch.distributed.optim import ZeroRedundancyOptimizer


class Trainer:
    def __init__(self, model, rank):
        self.rank = rank
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.Adam, lr=0.1)

    def state(self):
        return {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def run(self, loader):
        for batch in loader:
            self.model(batch).mean().backward()
            self.optimizer.step()
        %s
        if self.rank == 0:
            torch.save(self.state(), "last.pt")
"""

EXAMPLES = (
    bad("never", {"train.py": _TRAIN % ("pass", "pass", _ZERO)}, "train.py:11 error"),
    bad("on rank 0 only", {"train.py": _TRAIN % ("pass", _CALL, _ZERO)}, "train.py:11 error"),
    bad("every rank asks", {"train.py": _ALL % _CALL}, "train.py:9 error"),
    bad("in a method", {"train.py": _CLASS % "pass"}, "train.py:12 error"),
    good("all ranks", {"train.py": _TRAIN % (_CALL, "pass", _ZERO)}),
    good("all ranks, in a class", {"train.py": _CLASS % "self.optimizer.consolidate_state_dict()"}),
    good("a plain optimizer", {"train.py": _TRAIN % ("pass", "pass", "torch.optim.AdamW(model.parameters())")}),
)
