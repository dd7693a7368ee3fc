"""An attribute of the project's own object is read that nothing defines or sets.

**What.** `self.optimzer.step()`, `model.module.get_paramters()`, `logger.log_metric(...)` of the project's own logger:
the class and all its bases are known, and no code of the run sets or defines that name.

**Why it hurts.** Python says so only when the line is reached: `AttributeError` on every rank, after the job has waited
in the queue, loaded and trained: at the first save, at the end of the first epoch.

**Fix.** Use the name that the class has, or set it in `__init__`.

**When it stays quiet.** A class with `__getattr__`, `setattr`, a decorator, a metaclass or a base that nobody knows;
any code that sets an attribute of that name, or names it in a text (`setattr(x, "name", y)`, `register_buffer("name",
...)`, `hasattr(x, "name")`); code that sets attributes by computed names; objects that come from outside, whose class
may derive from the one that is known; a handler of the `AttributeError`. An error where neither options nor data decide
whether a run comes there, a warning otherwise, a note where a text chooses among several (`args.dataset == "coco"`).

**Evidence.** CPython 3.11 and `torch.nn.Module.__getattr__` of torch 2.13 raise `AttributeError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from dslint.core.finding import Finding, Severity
from dslint.python.values import ClassAtom, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.ownattributes import OwnAttributes
from dslint.rules.names.reached import is_asked, is_caught, rests_on_default, severity
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL725",
    name="attribute-never-set",
    kind="script",
    severity=Severity.ERROR,
    summary="an attribute of the project's own object that nothing defines or sets",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine", r"class "),
    references=("https://docs.python.org/3/reference/datamodel.html#object.__getattribute__",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each attribute that the object does not have."""
    own: OwnAttributes | None = None
    told: set[int] = set()
    for found in run.occurrences("missing-attribute"):
        event = found.event
        atom = event.receiver.single if event.receiver is not None else None
        name = str((event.arguments["name"].constants or ("",))[0])
        if id(event.node) in told or not isinstance(atom, Instance) or not isinstance(atom.cls, ClassAtom):
            continue
        own = own or OwnAttributes(run)
        if not own.lacks(atom.cls, name) or is_caught(found, "AttributeError") or rests_on_default(found):
            continue
        if is_asked(event.module, event.node):
            continue
        told.add(id(event.node))
        cls = atom.cls
        near = get_close_matches(name, own.names(cls), 1, 0.75)
        yield run.finding(
            META,
            event.module,
            event.node,
            f"Nothing sets `{name}` of a `{cls.node.name}`: Python raises AttributeError when it comes here",
            hint=f"Is `{near[0]}` meant?" if near else "Use a name that the class has, or set it in `__init__`",
            related=(run.location(cls.module, cls.node, f"`{cls.node.name}` is defined here"),),
            severity=severity(found),
        )


_TRAIN = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Log:
    def __init__(self, path):
        self.path = path

    def value(self, name, value):
        print(self.path, name, value)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x):
        return self.layer(x) * self.%s


class Trainer:
    def __init__(self, model, rank):
        self.model, self.rank = model, rank
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.log = Log("run.txt")%s

    def fit(self, loader):
        for x in loader:
            self.model(x).mean().backward()
            self.%s.step()
            self.optimizer.zero_grad()
        self.log.%s("done", 1)
        if self.rank == 0:
            self.%s("last.pt")

    def save(self, path):
        torch.save(self.model.module.state_dict(), path)


def main(rank):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(Net().cuda(rank), device_ids=[rank])
    Trainer(model, rank).fit([torch.ones(8, 8)])


if __name__ == "__main__":
    main(int(os.environ["LOCAL_RANK"]))
"""
_RIGHT = ("scale", "", "optimizer", "value", "save")


def _files(at: int, text: str, more: str = "") -> dict[str, str]:
    given = list(_RIGHT)
    given[at] = text
    given[1] = more or given[1]
    return {"train.py": _TRAIN % tuple(given)}


EXAMPLES = (
    good("Every name is there", _files(0, "scale")),
    bad("A letter is missing", _files(2, "optimzer"), "train.py:36"),
    bad("A method of an own logger", _files(3, "metric"), "train.py:38"),
    bad("A method of its own, on rank 0", _files(4, "save_last"), "train.py:40"),
    bad("A part of the model", _files(0, "scales"), "train.py:24"),
    good("Set by name", _files(2, "optimzer", '\n        setattr(self, "optimzer", self.optimizer)')),
    good("Set on the object", _files(3, "metric", "\n        self.log.metric = self.log.value")),
)
