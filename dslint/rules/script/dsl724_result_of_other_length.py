"""A result is taken apart into another number of names than it has parts.

**What.** `loss, accuracy = evaluate(...)` where the project's function returns three on every way, or
`for images, labels in loader:` over a data set of the project whose `__getitem__` returns an index, too.

**Why it hurts.** Python says so only when the line is reached: `ValueError` on every rank, after the job has waited in
the queue, loaded and trained: at the first evaluation, at the first batch of it.

**Fix.** Take as many as there are, or `*rest`.

**When it stays quiet.** A function that returns something else on one of its ways, or that may be another function; a
`collate_fn`, which may make anything of the items; a data set with a base that nobody knows; a handler of the
`ValueError`. An error where neither options nor data decide whether a run comes there, a warning otherwise, a note
where a text chooses among several (`args.dataset == "coco"`).

**Evidence.** CPython 3.11: `ValueError: too many values to unpack (expected 2)`; torch 2.13: the default collate makes
a list of as many parts of tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Alt, Try
from dslint.python.values import Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.unpackedbatches import Unpacked, unpacked_batches
from dslint.rules.names.reached import is_caught, rests_on_default, severity
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL724",
    name="result-of-other-length",
    kind="script",
    severity=Severity.ERROR,
    summary="a result is unpacked into another number of names than it has parts",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine", r"return |\bdef "),
    references=("https://docs.python.org/3/reference/simple_stmts.html#assignment-statements",),
    depends_on_run=True,
)
_HINT = "Take as many as there are, or collect what you do not need in `*_`"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each target that does not fit."""
    told: set[int] = set()
    for found in run.occurrences("refused-unpacking"):
        event = found.event
        if id(event.node) in told or is_caught(found, "ValueError") or rests_on_default(found):
            continue
        told.add(id(event.node))
        sizes = (event.arguments["sizes"].constants or ((),))[0]
        called = event.arguments["called"].single if "called" in event.arguments else None
        name: str = "this value"
        related: tuple[Location, ...] = ()
        if isinstance(called, Function):
            name = f"the result of `{called.name}`"
            related = (run.location(called.module, called.node, f"`{called.name}` is defined here"),)
        assert isinstance(sizes, tuple)
        yield run.finding(
            META,
            event.module,
            event.node,
            f"{_count(event.node)} names take {name}, which has {_listed(sizes)} parts: Python raises here",
            hint=_HINT,
            related=related,
            severity=severity(found),
        )
    for batch in unpacked_batches(run):
        if id(batch.target) not in told and not any(isinstance(node, Try) for node in batch.around):
            told.add(id(batch.target))
            yield _of_batch(run, batch)


def _of_batch(run: RunQuery, batch: Unpacked) -> Finding:
    is_open = any(isinstance(n, Alt) and n.then_lanes & n.else_lanes for n in batch.around)
    return run.finding(
        META,
        batch.loop.module,
        batch.target,
        f"{_count(batch.target)} names take a batch, but items of the data set have {_listed(batch.sizes)} parts: "
        "Python raises here",
        hint=_HINT,
        related=(run.location(batch.home, batch.method, "the items are made here"),),
        severity=Severity.WARNING if is_open or not batch.is_script else Severity.ERROR,
    )


def _count(target: object) -> int:
    return len(getattr(target, "elts", ()))


def _listed(sizes: Iterable[int]) -> str:
    return " or ".join(str(size) for size in sorted(sizes))


_TRAIN = """\
import os

import torch
import torch.distributed as dist
from engine import evaluate
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        image, label = self.items[index]
        return image, label, index


def main(items, rank):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(nn.Linear(8, 8).cuda(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Images(items)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler%s)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        %s
            loss = nn.functional.cross_entropy(model(image.cuda(rank)), label.cuda(rank))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        %s = evaluate(model, loader)
        print(loss, accuracy)


if __name__ == "__main__":
    main([], int(os.environ["LOCAL_RANK"]))
"""
_ENGINE = """\
import torch


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    if len(loader) == 0:
        return %s
    total = sum(float(model(batch[0]).mean()) for batch in loader)
    model.train()
    return total, 0.0, {"top5": 0.0}
"""
_HEAD, _TOOK = "for image, label, _ in loader:", "loss, accuracy, _"
_PAIRS, _ENUMERATED = "for image, label in loader:", "for step, (image, label) in enumerate(loader):"
_BODY = "for batch in loader:\n            image, label = batch"


def _files(head: str = _HEAD, took: str = _TOOK, collate: str = "", early: str = "0.0, 0.0, {}") -> dict[str, str]:
    return {"train.py": _TRAIN % (collate, head, took), "engine.py": _ENGINE % early}


EXAMPLES = (
    good("As many as there are", _files()),
    bad("Two of three results", _files(took="loss, accuracy"), "train.py:37"),
    bad("Four of three results", _files(took="loss, accuracy, top1, top5"), "train.py:37"),
    bad("No way returns so many", _files(took="loss, accuracy", early="0.0, 0.0, 0.0, {}"), "train.py:37"),
    good("One way returns so many", _files(took="loss, accuracy", early="0.0, 0.0")),
    good("The rest has a name", _files(took="loss, accuracy, *rest")),
    bad("Two of three parts of a batch", _files(_PAIRS), "train.py:32"),
    bad("A loop that counts", _files(_ENUMERATED), "train.py:32"),
    bad("In the body of the loop", _files(_BODY), "train.py:33"),
    good("A collate function may drop one", _files(_PAIRS, collate=", collate_fn=lambda items: items")),
)
