"""The items of a data set, or their labels, follow the order of a set of texts: each process has another order.

**What.** `list(names)`, a list made of `names` or `{name: n for n, name in enumerate(names)}`, where `names` is a set
of texts, in a data set that a `DistributedSampler`, accelerate, Lightning or a Trainer divides by position.

**Why it hurts.** Python salts the hashes of texts in each process, and the order of a set follows them. Place 7 is
another item on each rank: some items come twice in an epoch, and others never. A label is another class on each rank,
and the averaged gradients point to several. A checkpoint does not fit the next run either. Nothing fails.

**Fix.** `sorted(names)`.

**When it stays quiet.** What is sorted afterwards; sets of numbers, and those whose items are not known to be texts; a
project that sets `PYTHONHASHSEED`; processes that are forked or spawned when the order is there; one process.

**Evidence.** Two interpreters list the same set of four texts in different orders; with `PYTHONHASHSEED=0` in one.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.drawnorders import set_orders
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL706",
    name="order-of-set-in-every-process",
    kind="script",
    severity=Severity.WARNING,
    summary="items or labels follow the order of a set of texts, which is another one in each process",
    markers=(r"\bset\(|\{", r"DistributedSampler|accelerat|lightning|Trainer|deepspeed"),
    references=("https://docs.python.org/3/reference/datamodel.html#object.__hash__",),
    depends_on_run=True,
    no_experiment="DSL257 shows on two ranks what a sampler deals out of two orders",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on what follows the order of a set, in data that the ranks divide by position."""
    if run.context.is_one_process:
        return
    for dealt, order in set_orders(run):
        yield run.finding(
            META,
            order.module,
            order.node,
            f"`{run.text(order.module, order.node, 50)}` has another order in each process: places or labels mean other"
            " items on each rank",
            hint="Sort the set first: `sorted(...)`",
            related=(run.location(dealt.module, dealt.node, "the ranks divide the items here"),),
        )


_LISTED = """\
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pairs(Dataset):
    def __init__(self, root):
        self.root = Path(root)
        self.names = self.find()

    def find(self):
        images = {path.stem for path in self.root.glob("*.jpg")}
        masks = {path.stem for path in self.root.glob("*.png")}
        return %s

    def __len__(self):
        return len(self.names)

    def __getitem__(self, at):
        return torch.load(self.root / self.names[at], map_location="cpu")


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    data = Pairs("data")
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(torch.nn.Linear(4, 1).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for rows in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            model(rows.cuda()).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""
_LABELS = """\
import csv

from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForSequenceClassification


class Comments(Dataset):
    def __init__(self, path, labels):
        self.rows = list(csv.reader(open(path)))
        self.labels = labels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        text, label = self.rows[at]
        return {"text": text, "labels": self.labels[label]}


def labels_of(folder):
    names = set()
    for name in ("angry", "calm", "sad"):
        names.add(name.title())
    return {name: number for number, name in enumerate(%s)}


def main():
    accelerator = Accelerator()
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased")
    loader = DataLoader(Comments("rows.csv", labels_of("data")), batch_size=8, shuffle=True)
    model, loader = accelerator.prepare(model, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)


if __name__ == "__main__":
    main()
"""

EXAMPLES = (
    bad("the names that two folders share", {"train.py": _LISTED % "list(images & masks)"}, "train.py:18"),
    bad("a list of paths", {"train.py": _LISTED % '[f"{name}.pt" for name in images - masks]'}, "train.py:18"),
    bad("numbers of labels", {"train.py": _LABELS % "names"}, "train.py:25"),
    good("sorted names", {"train.py": _LISTED % "sorted(images & masks)"}),
    good("a list of sorted names", {"train.py": _LISTED % '[f"{name}.pt" for name in sorted(images - masks)]'}),
    good("numbers of sorted labels", {"train.py": _LABELS % "sorted(names)"}),
)
