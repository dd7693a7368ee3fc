"""An endless loop starts a loader anew each time it ends: a loader without a batch makes it hang.

**What.** `while True: yield from loader`, or a `for` over the loader inside of `while True:`, where the loader drops
its last batch (`drop_last=True`).

**Why it hurts.** A rank whose share of the data is smaller than one batch gets a loader of no batches: a small data
set, a large batch, more GPUs. Nothing raises: the first `next(...)` never returns, one core is busy, no line is
printed, and the other ranks wait in their first collective until the time of the process group is over.

**Fix.** Stop where the loader is empty: `if len(loader) == 0: raise ValueError(...)`, before the loop.

It is a note: only a share smaller than a batch comes to it.

**When it stays quiet.** A loader that keeps its last batch, or may keep it; a loop that may end, or does something else
in each of its turns; code that asks for the length of the loader.

**Evidence.** torch 2.13: a `DataLoader` of 3 items with `batch_size=4, drop_last=True` has no batches, and `next` of a
generator that goes through it in `while True` did not return within ten seconds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.names import names_of
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL752",
    name="endless-turns-of-empty-loader",
    kind="script",
    severity=Severity.INFO,
    summary="`while True` starts a loader anew that may have no batch on a rank: it hangs without a message",
    markers=(r"while (?:True|1)\b", r"drop_last", r"DataLoader"),
    references=("https://pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",),
    depends_on_run=True,
    no_experiment="one process shows that it never returns",
)
# Who asks for the number of batches may know that there are none.
_ASKS = re.compile(
    r"(?i)\blen\(\s*[\w.]*(?:loader|_dl|\bdl|data_?iter)\w*\s*\)\s*(?:[<>=!]=?|,)|assert len\(\s*[\w.]*loader"
)
# Through so many names a loader may come.
_DEPTH = 4
_LOADER = "torch.utils.data.DataLoader"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each endless loop that goes through such a loader."""
    modules = run.machine.program.ran()
    if not any("drop_last" in module.source.text for module in modules):
        return
    known = {found.event.node for found in run.happenings("makes-loader") if _drops(found.event)}
    for module in modules:
        for loop in module.nodes_of(ast.While):
            through = _goes_through(loop)
            if through is None or module.search(_ASKS) is not None:
                continue
            home, maker = _made_by(run, module, loop, through, known)
            if maker is not None and home.search(_ASKS) is None:
                name = run.text(module, through, 30)
                yield run.finding(
                    META,
                    module,
                    loop,
                    f"Where `{name}` has no batch (a small share, with `drop_last`), this loop never ends: a hang",
                    hint="Raise an error before the loop where the loader has no batch",
                    related=(run.location(home, maker, "drops the last batch"),),
                )


def _drops(event: Event) -> bool:
    """Return whether a loader certainly drops a batch that is not full."""
    drops = event.arguments.get("drop_last")
    return event.api == _LOADER and drops is not None and drops.constants == (True,)


def _goes_through(loop: ast.While) -> ast.expr | None:
    """Return what an endless loop goes through in each of its turns, where it does nothing else."""
    is_endless = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    body = [s for s in loop.body if not _says_nothing(s)]
    if not is_endless or len(body) != 1:
        return None
    (inner,) = body
    if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.YieldFrom):
        return inner.value.value
    if isinstance(inner, ast.For) and not inner.orelse and not any(_leaves(node) for node in ast.walk(loop)):
        return inner.iter
    return None


def _says_nothing(statement: ast.stmt) -> bool:
    """Return whether a statement of a turn ends nothing: a count, a new epoch of the sampler, a line in the log."""
    return isinstance(statement, ast.AugAssign | ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    )


def _leaves(node: ast.AST) -> bool:
    return isinstance(node, ast.Break | ast.Return | ast.Raise | ast.Assert)


def _made_by(
    run: RunQuery, module: Module, loop: ast.While, through: ast.expr, known: set[ast.AST]
) -> tuple[Module, ast.Call | None]:
    """Return the call that has made the loader, where all that may come there drop their last batch."""
    given = [(module, through), *_passed(run, module.function(loop), through)]
    calls = [found for home, node in given for found in _calls_behind(run, home, node, _DEPTH)]
    drop = [node in known or _says_so(node) for _, node in calls]
    return calls[0] if calls and all(drop) else (module, None)


def _calls_behind(run: RunQuery, home: Module, node: ast.AST, depth: int) -> Iterator[tuple[Module, ast.Call]]:
    """Yield the calls that make loaders and whose result an expression may be, through names and fields."""
    if isinstance(node, ast.Call):
        if names_of(home.tree).called(node).endswith("DataLoader"):
            yield home, node
    elif depth and isinstance(node, ast.Name | ast.Attribute):
        for other, piece in run.derived.behind(home, node):
            yield from _calls_behind(run, other, piece, depth - 1)


def _passed(run: RunQuery, scope: ast.AST | None, through: ast.expr) -> Iterator[tuple[Module, ast.expr]]:
    """Yield what calls of a generator hand on to the parameter that it goes through."""
    if not isinstance(scope, ast.FunctionDef) or not isinstance(through, ast.Name):
        return
    names = [argument.arg for argument in scope.args.args]
    if through.id not in names:
        return
    at = names.index(through.id) - (names[:1] == ["self"])
    for home in run.machine.program.ran():
        for call in home.nodes_of(ast.Call):
            called = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if called == scope.name:
                yield from ((home, keyword.value) for keyword in call.keywords if keyword.arg == through.id)
                yield from ((home, value) for value in call.args[at : at + 1])


def _says_so(call: ast.Call) -> bool:
    given = (keyword.value for keyword in call.keywords if keyword.arg == "drop_last")
    return any(isinstance(value, ast.Constant) and value.value is True for value in given)


_TRAIN = """\
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def cycle(%s):
    while True:
        %s


def main(data):
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=%s)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = %s
    for step in range(1000):
        sampler.set_epoch(step)
        optimizer.zero_grad()
        model(next(batches).cuda()).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(torch.rand(100, 4))
"""
_FROM, _FOR = "yield from loader", "for batch in loader:\n            yield batch"

EXAMPLES = (
    bad("yield from", {"train.py": _TRAIN % ("loader", _FROM, "True", "cycle(loader)")}, "train.py:9 info"),
    bad("a loop inside", {"train.py": _TRAIN % ("loader", _FOR, "True", "cycle(loader)")}, "train.py:9 info"),
    bad("with a count of epochs", {"train.py": _TRAIN % (
        "loader, epoch=0", _FOR + "\n        epoch += 1", "True", "iter(cycle(loader))")}, "train.py:9 info"),
    bad("of an object", {"train.py": (_TRAIN % ("", "pass", "False", "Batches(data).each()")).replace(
        "def cycle():\n    while True:\n        pass\n",
        "class Batches:\n    def __init__(self, data):\n"
        "        self.loader = DataLoader(data, 32, sampler=DistributedSampler(data), drop_last=True)\n\n"
        "    def each(self):\n        while True:\n            yield from self.loader\n")}, "train.py:13 info"),
    good("the last batch is kept", {"train.py": _TRAIN % ("loader", _FROM, "False", "cycle(loader)")}),
    good("asked before", {"train.py": _TRAIN % ("loader", _FROM, "True", "cycle(loader)\n    assert len(loader) > 0")}),
    good("a loop that ends", {"train.py": _TRAIN % (
        "loader, most=9", _FOR + "\n            most -= 1\n            if most == 0:\n                return", "True",
        "cycle(loader)")}),
    good("something else in each turn", {"train.py": _TRAIN % (
        "loader", "yield torch.zeros(1, 4)\n        " + _FOR, "True", "cycle(loader)")}),
)  # fmt: skip
