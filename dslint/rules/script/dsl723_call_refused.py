"""A call of the project's own function, method or class does not fit its signature.

**What.** `evaluate(model, loader)` where the function wants a `device`, too, `save(model, epoch, path)` of one that
takes two, `Net(hidden=256)` of a class whose `__init__` has `hidden_size`: also in another file, of a method of a base,
of `forward`, of a dataclass, through a decorator or `functools.partial`.

**Why it hurts.** Python says so only when the line is reached: `TypeError` on every rank, after the job has waited in
the queue, loaded and trained: at the first evaluation, the first save, the resume.

**Fix.** Call it as it is defined, or give the parameter a default.

**When it stays quiet.** The function takes `*args` or `**kwargs`; the call unpacks something that nobody knows; a
decorator of a library that may change the signature; a name that may mean several functions of which one takes the
call; a method that a class of the project overrides, of an object that comes from outside; a handler of the
`TypeError`, or a look at the signature, around the call; code that no run reaches. An error where neither options nor
data decide whether a run comes there, a warning otherwise, a note where a text chooses among several
(`args.dataset == "coco"`).

**Evidence.** CPython 3.11: each of these calls raises `TypeError` before the body of the function runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.decorators import KEEPS
from dslint.rules.names.reached import (
    is_asked,
    is_caught,
    is_one_of_several,
    rests_on_default,
    severity,
    written_call,
)
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL723",
    name="call-refused",
    kind="script",
    severity=Severity.ERROR,
    summary="a call of the project's own function whose arguments do not fit its signature",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine", r"def |class "),
    references=("https://docs.python.org/3/reference/expressions.html#calls",),
    depends_on_run=True,
)
_TAG = "refused-call"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call that Python refuses."""
    told: set[tuple[int, int]] = set()
    for found in run.occurrences(_TAG):
        called = found.event.arguments["called"].single
        module, node = written_call(found)
        if (id(node), id(called)) in told or not isinstance(called, Function | ClassAtom):
            continue
        told.add((id(node), id(called)))
        if _may_fit(run, found, called) or is_caught(found, "TypeError") or is_asked(found.event.module, node):
            continue
        yield _finding(run, found, called, module, node)


def _may_fit(run: RunQuery, found: Happening, called: Function | ClassAtom) -> bool:
    """Return whether the call may mean something else, or what is called takes other arguments than it says."""
    if is_one_of_several(found, _TAG) or rests_on_default(found):
        return True
    if isinstance(called, ClassAtom):
        return False
    said = run.machine.program.noted.decorators.get(called, ())
    if any(path.rpartition(".")[2] not in KEEPS for path, _ in said):
        return True
    return found.event.may and (_is_stub(called) or _is_overridden(run, called))


def _is_stub(function: Function) -> bool:
    """Return whether a function says only that others must define it."""
    body = function.node.body if isinstance(function.node, ast.FunctionDef) else []
    kept = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return all(isinstance(n, ast.Pass | ast.Raise) for n in kept)


def _is_overridden(run: RunQuery, function: Function) -> bool:
    """Return whether another class of the project defines a method of that name, too."""
    for module in run.machine.program.modules():
        for cls in module.nodes_of(ast.ClassDef):
            is_other = function.owner is None or cls is not function.owner.node
            if is_other and any(isinstance(n, ast.FunctionDef) and n.name == function.name for n in cls.body):
                return True
    return False


def _finding(run: RunQuery, found: Happening, called: Function | ClassAtom, module: Module, node: ast.AST) -> Finding:
    name = called.node.name if isinstance(called, ClassAtom) else _name(called)
    problem = (found.event.arguments["problem"].constants or ("",))[0]
    related = run.location(called.module, called.node, f"`{name}` is defined here")
    return run.finding(
        META,
        module,
        node,
        f"Python refuses this call of `{name}` when it comes here: {problem}",
        hint="Call it as it is defined, or give the parameter a default",
        related=(related,),
        severity=severity(found),
    )


def _name(function: Function) -> str:
    """Return what a person calls a function: the class for its constructor."""
    if function.owner is not None and function.name == "__init__":
        return function.owner.node.name
    return function.name


_TRAIN = """\
import os

import torch
import torch.distributed as dist
from engine import Meter, evaluate, save
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x, mask):
        return self.layer(x) * mask


def main(loader, rank, path):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(Net(%s).cuda(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = Meter("loss"%s)
    for x in loader:
        loss = model(x%s).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        meter.update(loss.item()%s)
    evaluate(model, loader%s)
    if rank == 0:
        save(model, path%s)


if __name__ == "__main__":
    main([torch.ones(4, 4)], int(os.environ["LOCAL_RANK"]), "last.pt")
"""
_ENGINE = """\
import functools
from dataclasses import dataclass

import torch


def timed(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


@torch.no_grad()
def evaluate(model, loader, device):
    for x in loader:
        model(x.to(device), 1)


@timed
def save(model, path, *, step):
    torch.save(model.module.state_dict(), f"{path}-{step}")


@dataclass
class Meter:
    name: str
    window: int = 20

    def update(self, value, count=1):
        print(self.name, value, count)
"""
_RIGHT = ("width=8", "", ", 1", "", ", rank", ", step=3")


def _files(at: int, text: str, engine: str = _ENGINE) -> dict[str, str]:
    given = list(_RIGHT)
    given[at] = text
    return {"train.py": _TRAIN % tuple(given), "engine.py": engine}


_GUARDED = """\
import torch.distributed as dist


def evaluate(model, loader, device):
    return 0.0


def main(model, loader):
    dist.init_process_group("gloo")
    try:
        return evaluate(model, loader)
    except TypeError:
        return evaluate(model, loader, "cpu")


if __name__ == "__main__":
    main(None, [])
"""
_CHOSEN = """\
import sys

import torch.distributed as dist


def short(model):
    return 0.0


def long(model, loader):
    return 0.0


def main(model, loader):
    dist.init_process_group("gloo")
    evaluate = short if %s else long
    return evaluate(model, loader)


if __name__ == "__main__":
    main(None, [])
"""
_BASE = """\
import torch.distributed as dist


class Loop:
    def __init__(self, model):
        self.model = model

    def step(self, batch):
        raise NotImplementedError

    def run(self, loader):
        dist.barrier()
        for batch in loader:
            self.step(batch, 1)


class Own(Loop):
    def step(self, batch, number):
        return self.model(batch)
"""
_HYDRA = _ENGINE.replace("@torch.no_grad()", "@hydra.main()").replace("import torch\n", "import hydra\nimport torch\n")
EXAMPLES = (
    good("Every call fits", _files(0, _RIGHT[0])),
    bad("A required argument is left out", _files(4, ""), "train.py:30"),
    bad("A keyword that `__init__` does not take", _files(0, "hidden=8"), "train.py:21"),
    bad("A field that a dataclass does not have", _files(1, ", size=3"), "train.py:23"),
    bad("`forward` of the model inside DDP", _files(2, ""), "train.py:25"),
    bad("A method gets too many", _files(3, ", 1, 2"), "train.py:29"),
    bad("Through a decorator that hands on what it gets, on rank 0", _files(5, ""), "train.py:32"),
    good("The function takes anything", _files(4, "", _ENGINE.replace("device)", "device='cpu', **rest)"))),
    good("A library's decorator gives the argument", _files(4, "", _HYDRA)),
    good("Somebody catches it", {"train.py": _GUARDED}),
    good("One of two functions takes it", {"train.py": _CHOSEN % "len(sys.argv) > 2"}),
    good("The method of the class that derives", {"train.py": _BASE}),
)  # fmt: skip
