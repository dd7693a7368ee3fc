"""Code that makes items or batches waits for other ranks.

**What.** `__getitem__` of a data set (or `__iter__` of an iterable one whose loader has workers), or a function passed
as `collate_fn` or `worker_init_fn`, runs a collective: `dist.barrier()`, `dist.all_gather(...)`.

**Why it hurts.** With `num_workers` above 0 this code runs in worker processes: forks of the rank that have its sockets
and none of the threads of its process group (or processes that have no group at all). The collective never completes,
and the loop waits for its first batch forever. Without workers it runs in the rank itself, as often as the rank has
items: the first rank with an item more waits for the others.

**Fix.** Make the collective once, in the rank, before the loader is made; share what it gives through the data set.

**When it stays quiet.** Classes that are no data sets of torch (losses, samplers, which run in the rank); `__init__`
and methods that nobody calls for each item; helpers that run no collective; code that asks `get_worker_info()`;
`__iter__` of an iterable data set while no loader with workers is known.

**Evidence.** Two gloo ranks: an `all_reduce` in `__getitem__`, `collate_fn` or `worker_init_fn` with one worker stalls
both ranks forever; without workers it stalls with 5 against 4 items, and passes with 4 each. An error when the
loader is known to have workers, else a warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Alt, Call, Event, Node, children, events, walk
from dslint.python.queries.asked import in_words
from dslint.python.source import Module
from dslint.python.values import Atom, Bound, ClassAtom, Function, Instance, Partial
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import asked
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL230",
    name="collective-in-data-code",
    kind="script",
    severity=Severity.WARNING,
    summary="a collective in `__getitem__`, `collate_fn` or `worker_init_fn` waits forever in a worker process",
    markers=(r"Dataset|DataLoader|Loader\b|__getitem__|collate_fn|worker_init_fn|utils(?:\.| import )data",),
    references=("https://pytorch.org/docs/stable/data.html#multi-process-data-loading",),
    depends_on_run=True,
)

_COLLECTIVES = frozenset({"collective", "barrier", "object-collective"})
# In a worker these begin a group of the workers themselves.
_GROUPS = frozenset({"starts-group", "makes-group", "destroys-group", "wraps-model", "makes-engine"})
_ITEMS = ("__getitem__", "__getitems__")
_PLACES = {"collate_fn": "collate", "worker_init_fn": "init"}
_ASKS_WORKER = re.compile(r"worker_info")


@dataclass(frozen=True, slots=True)
class _DataCode:
    """A function that makes items or batches; `workers` where a loader that has some is known."""

    function: ast.AST
    module: Module
    name: str
    place: str
    workers: int | None


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first collective of each function that makes items or batches."""
    if run.context.is_one_process:
        return
    calls: dict[ast.AST, Call] = {}
    for _, tree in run.trees():
        for node in walk(tree):
            if isinstance(node, Call) and isinstance(node.function, Function):
                calls.setdefault(node.function.node, node)
    seen: set[ast.AST] = set()
    codes = sorted((*_passed(run), *_methods(run, calls)), key=lambda code: -(code.workers or 0))
    for code in codes:
        call = calls.get(code.function)
        if call is None or code.function in seen or _asks_for_worker(call):
            continue
        found = _first(call.body)
        if found is not None:
            seen.add(code.function)
            yield _finding(run, code, *found)


def _loaders(run: RunQuery) -> Iterator[Event]:
    return (found.event for found in run.occurrences("makes-loader") if "num_workers" in _parameters(run, found.event))


def _parameters(run: RunQuery, event: Event) -> set[str]:
    row = run.machine.libraries.class_(event.api)
    given = row.constructor.parameters if row is not None else None
    return {p.arg for p in (*given.args, *given.kwonlyargs)} if given is not None else set()


def _workers(event: Event) -> int | None:
    """Return how many workers a loader certainly has."""
    value = event.arguments.get("num_workers")
    if value is None:
        return None if event.open else 0
    known = value.constants or ()
    return known[0] if len(known) == 1 and isinstance(known[0], int) else None


def _passed(run: RunQuery) -> Iterator[_DataCode]:
    """Yield the functions that a loader gets, and the `__call__` of objects."""
    for event in _loaders(run):
        workers = _workers(event)
        for parameter, place in _PLACES.items():
            value = event.arguments.get(parameter)
            function = _function(run, value.single) if value is not None else None
            if function is not None and not (place == "init" and workers == 0):
                yield _DataCode(function[1], function[0], getattr(function[1], "name", "<lambda>"), place, workers)


def _function(run: RunQuery, atom: Atom | None) -> tuple[Module, ast.AST] | None:
    """Return the function that calling something runs."""
    if isinstance(atom, Partial):
        return _function(run, atom.function.single)
    if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
        for base in attributes.lineage(run.machine, atom.cls):
            body = base.node.body if isinstance(base, ClassAtom) else []
            found = next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == "__call__"), None)
            if found is not None and isinstance(base, ClassAtom):
                return base.module, found
    inner = atom.function if isinstance(atom, Bound) else atom
    return (inner.module, inner.node) if isinstance(inner, Function) else None


def _methods(run: RunQuery, calls: dict[ast.AST, Call]) -> Iterator[_DataCode]:
    """Yield the methods of data sets that run for each item."""
    counts: dict[ast.AST, int] = {}
    for event in _loaders(run):
        for code in (node for source in event.sources if source.role == "dataset" for _, node in source.code):
            counts[code] = max(counts.get(code, 0), _workers(event) or 0)
    for call in calls.values():
        function = call.function
        if not isinstance(function, Function) or function.owner is None:
            continue
        if not attributes.is_instance_of(run.machine, function.owner, "torch.utils.data.Dataset"):
            continue
        workers = counts.get(function.owner.node) or None
        if function.name in _ITEMS or (function.name == "__iter__" and workers):
            yield _DataCode(function.node, function.module, function.name, "getitem", workers)


def _asks_for_worker(call: Call) -> bool:
    """Return whether code tells worker processes from ranks, also through a function that it calls."""
    nodes = list(walk(call))
    called = {n.node: n.function for n in nodes if isinstance(n, Call) and isinstance(n.function, Function)}
    for test in (node for node in nodes if isinstance(node, Alt)):
        inner = (called[n] for n in ast.walk(asked(test)) if n in called)
        texts = (in_words(test), *(f.module.text(f.node) for f in inner))
        if any(map(_ASKS_WORKER.search, texts)):
            return True
    return False


def _first(node: Node, via: Call | None = None) -> tuple[Event, Call | None] | None:
    """Return the first collective of a body, with the call of the body that leads to it."""
    if isinstance(node, Event):
        return (node, via) if node.tags & _COLLECTIVES and not node.tags & _GROUPS and not node.may else None
    if isinstance(node, Call):
        inner = next((e for e in events(node.body) if _first(e) is not None), None)
        return (inner, via or node) if inner is not None else None
    return next((found for child in children(node) if (found := _first(child, via)) is not None), None)


def _finding(run: RunQuery, code: _DataCode, event: Event, via: Call | None) -> Finding:
    module, node = (via.module, via.node) if via is not None else (event.module, event.node)
    key = event.api.rpartition(".")[2]
    inside = f" (`{key}`)" if via is not None else ""
    called = run.text(module, node.func if isinstance(node, ast.Call) else node)
    return run.finding(
        META,
        module,
        node,
        f"`{code.name}` calls `{called}`{inside}, which needs all ranks, but {_why(code.place, code.workers)}",
        hint="Run the collective once, in the rank, before the loader is made",
        severity=Severity.ERROR if code.workers else Severity.WARNING,
        related=(
            run.location(code.module, code.function, "runs for each item or batch"),
            *((run.location(event.module, event.node, "the collective"),) if via is not None else ()),
        ),
        facts={"place": code.place, "workers": code.workers, "collective": key},
    )


def _why(place: str, workers: int | None) -> str:
    what = {"getitem": "makes the items", "collate": "makes the batches", "init": "begins the worker"}[place]
    if workers:
        return f"it {what} in {workers} workers without a process group: it never returns"
    if place == "init":
        return f"it {what} process, which has no process group: it never returns"
    return f"it {what} in workers or unequally often"


_HEAD = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Items(Dataset):
    def __init__(self, paths):
        self.paths = paths

"""

_LENGTHS = """\
import torch
import torch.distributed as dist


def longest(items):
    length = torch.tensor(max(map(len, items)))
%s    dist.all_reduce(length, op=dist.ReduceOp.MAX)
    return int(length)
"""
_BATCHES = """\
from functools import partial

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from lengths import longest


class Collate:
    def __init__(self, pad):
        self.pad = pad

    def __call__(self, items):
        length = longest(items)
        return [item + [self.pad] * (length - len(item)) for item in items]


def loader(data, **options):
    options.setdefault("num_workers", 4)
    return DataLoader(data, sampler=DistributedSampler(data), collate_fn=Collate(0), **options)


def main(data):
    for batch in loader(data):
        print(batch)
"""

EXAMPLES = (
    bad(
        "an object collates, and a helper of another file agrees on the length",
        {"batches.py": _BATCHES, "lengths.py": _LENGTHS % ""},
        at="batches.py:13 error",
    ),
    good(
        "only a process without workers agrees on the length",
        {
            "batches.py": _BATCHES,
            "lengths.py": (_LENGTHS % "    if get_worker_info() is not None:\n        return int(length)\n").replace(
                "distributed as dist\n", "distributed as dist\nfrom torch.utils.data import get_worker_info\n"
            ),
        },
    ),
    bad(
        "a barrier for each item, in worker processes",
        {
            "data.py": _HEAD + "    def __getitem__(self, index):\n        dist.barrier()\n"
            "        return self.paths[index]\n\n\n"
            "def loader(paths):\n    return DataLoader(Items(paths), num_workers=4)\n"
        },
        at="data.py:10 error",
    ),
    bad(
        "a helper of the data set gathers; nobody knows how many workers there are",
        {
            "data.py": _HEAD + "    def total(self, length):\n        lengths = [None] * dist.get_world_size()\n"
            "        dist.all_gather_object(lengths, length)\n        return sum(lengths)\n\n"
            "    def __getitem__(self, index):\n        return self.total(len(self.paths[index]))\n"
        },
        at="data.py:15 warning",
    ),
    bad(
        "the collate function agrees on a length",
        {
            "data.py": "import torch\nimport torch.distributed as dist\nfrom torch.utils.data import DataLoader\n\n\n"
            "def collate(items):\n    length = torch.tensor(max(map(len, items)))\n"
            "    dist.all_reduce(length, op=dist.ReduceOp.MAX)\n    return [item[:length] for item in items]\n\n\n"
            "def loader(data):\n    return DataLoader(data, collate_fn=collate, num_workers=2)\n"
        },
        at="data.py:8 error",
    ),
    good(
        "the collective runs in the rank, when the data set is made",
        {
            "data.py": _HEAD + "        dist.barrier()\n\n    def __getitem__(self, index):\n"
            "        return self.paths[index]\n\n    def share(self):\n"
            "        dist.broadcast_object_list(self.paths, src=0)\n"
        },
    ),
    good(
        "a loss and a sampler run in the rank",
        {
            "loss.py": "import torch\nimport torch.distributed as dist\nfrom torch.utils.data import Sampler\n\n\n"
            "class Loss(torch.nn.Module):\n    def __call__(self, value):\n        dist.all_reduce(value)\n"
            "        return value\n\n\nclass Shared(Sampler):\n    def __iter__(self):\n"
            "        order = [list(range(9))]\n        dist.broadcast_object_list(order, src=0)\n"
            "        return iter(order[0])\n\n    def __getitem__(self, index):\n        return index\n"
        },
    ),
    good(
        "asking for the rank is not a collective",
        {
            "data.py": _HEAD + "    def __getitem__(self, index):\n"
            "        return self.paths[index * dist.get_world_size() + dist.get_rank()]\n"
        },
    ),
)
