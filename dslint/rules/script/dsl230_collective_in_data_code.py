"""Code that makes items or batches waits for other ranks.

**What.** `__getitem__` of a data set (or `__iter__` of an iterable one whose loader has workers), or a function passed
as `collate_fn` or `worker_init_fn`, runs a collective: `dist.barrier()`, `dist.all_gather(...)`.

**Why it hurts.** With `num_workers` above 0 this code runs in worker processes: forks of the rank that have its sockets
and none of the threads of its process group (or processes that have no group at all). The collective never completes,
and the loop waits for its first batch for ever. Without workers it runs in the rank itself, as often as the rank has
items: the first rank with an item more waits for the others.

**Fix.** Make the collective once, in the rank, before the loader is made; share what it gives through the data set.

**When it stays quiet.** Classes that are no data sets of torch (losses, samplers, which run in the rank); `__init__`
and methods that nobody calls for each item; helpers that run no collective; `__iter__` of an iterable data set while
no loader with workers is known.

**Evidence.** Two gloo ranks: an `all_reduce` in `__getitem__`, `collate_fn` or `worker_init_fn` with one worker stalls
both ranks for ever; without workers it stalls with 5 against 4 items, and passes with 4 each. An error when the file
gives the loader workers, else a warning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.collective.vocabulary import COLLECTIVE_NAMES
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL230",
    name="collective-in-data-code",
    kind="script",
    severity=Severity.WARNING,
    summary="a collective in `__getitem__`, `collate_fn` or `worker_init_fn` waits for ever in a worker process",
    markers=(
        r"utils(?:\.| import )data",
        r"__getitem__|collate_fn|worker_init_fn|IterableDataset",
        r"(?:barrier|wait_for_everyone|all_gather\w*|all_reduce|broadcast\w*|gather\w*|reduce|scatter\w*)\(",
        r"\.distributed|from torch import|deepspeed|accelerat|mmengine",
    ),
    references=("https://pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)

_HEAD = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Items(Dataset):
    def __init__(self, paths):
        self.paths = paths

"""

EXAMPLES = (
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
        "asking for the rank is no collective",
        {
            "data.py": _HEAD + "    def __getitem__(self, index):\n"
            "        return self.paths[index * dist.get_world_size() + dist.get_rank()]\n"
        },
    ),
)

_DATA_SETS = ("torch.utils.data.", "torchvision.datasets.")
_ITEMS = ("__getitem__", "__getitems__")
_PLACES = {"collate_fn": "collate", "worker_init_fn": "init"}


def precheck(tree: ast.Module) -> bool:
    """A data set or loader code, and the name of a collective inside some function."""
    nodes = flat(tree)
    if not any(call_name(call) in COLLECTIVE_NAMES for call in nodes.nodes(ast.Call)):
        return False
    if any(k.arg in _PLACES for call in nodes.nodes(ast.Call) for k in call.keywords):
        return True
    return any(
        isinstance(member, ast.FunctionDef) and (member.name in _ITEMS or member.name == "__iter__")
        for owner in nodes.nodes(ast.ClassDef)
        if owner.bases
        for member in owner.body
    )


class Check(ScriptCheck):
    """Looks at the functions that make items and batches."""

    def finish(self) -> None:
        """Judge each such function once, at its first collective."""
        seen: set[int] = set()
        for function, place, workers in (*self._methods(), *self._passed()):
            if id(function) not in seen:
                seen.add(id(function))
                self._judge(function, place, workers)

    def _methods(self) -> Iterator[tuple[cst.FunctionDef, str, int | None]]:
        for owner in self.ctx.tree.every(cst.ClassDef):
            if not self._is_data_set(owner):
                continue
            workers = self._workers_of(owner.name.value)
            for member in owner.body.body:
                if not isinstance(member, cst.FunctionDef):
                    continue
                if member.name.value in _ITEMS or (member.name.value == "__iter__" and workers):
                    yield member, "getitem", workers

    def _is_data_set(self, owner: cst.ClassDef) -> bool:
        bases = self.ctx.class_bases(owner.name.value)
        return any(b.startswith(_DATA_SETS) and not b.endswith(("Sampler", "DataLoader")) for b in bases)

    def _passed(self) -> Iterator[tuple[cst.FunctionDef, str, int | None]]:
        """The functions of this file that a `DataLoader` gets, and the `__call__` of its classes."""
        for call in self.ctx.loaders.calls():
            for name, place in _PLACES.items():
                given = self.ctx.loaders.argument(call, name)
                function = self._function(given) if given is not None else None
                workers = self._workers(call)
                if function is not None and not (place == "init" and workers == 0):
                    yield function, place, workers

    def _function(self, given: cst.BaseExpression) -> cst.FunctionDef | None:
        found = self.ctx.names.function_named(given)
        made = self.ctx.names.single_value(given) or given
        if found is not None or not isinstance(made, cst.Call):
            return found
        owner = self.ctx.names.local_class(self.ctx.called(made)) if isinstance(made.func, cst.Name) else None
        members = owner.body.body if owner is not None else ()
        return next((m for m in members if isinstance(m, cst.FunctionDef) and m.name.value == "__call__"), None)

    def _workers_of(self, name: str) -> int | None:
        """The most workers that a loader of this file is known to have for a data set of a class."""
        counts = [
            self._workers(call)
            for call in self.ctx.loaders.calls()
            for source in self.ctx.loaders.sources.of(self.ctx.loaders.argument(call, "dataset"))
            if isinstance(source.node, cst.Call) and last_name(source.node.func) == name
        ]
        return max((c for c in counts if c is not None), default=None)

    def _workers(self, call: cst.Call) -> int | None:
        value = self.ctx.loaders.argument(call, "num_workers")
        if value is None:
            return None if self.ctx.has_unpacked_arguments(call) else 0
        known = self.ctx.constant(value).get_or(None)
        return known if isinstance(known, int) else None

    def _judge(self, function: cst.FunctionDef, place: str, workers: int | None) -> None:
        for node in self.ctx.tree.own_nodes(function.body):
            event = self.ctx.summaries.event(node) if isinstance(node, cst.Call) else None
            if event is None or not isinstance(node, cst.Call) or event.collectives[0].family == "engine":
                continue
            inside = f", which runs `{event.collectives[0].key}`" if event.through is not None else ""
            self.report(
                node,
                f"`{function.name.value}` calls `{self.ctx.text(node.func)}`{inside}, which waits for all ranks, but "
                + self._why(place, workers),
                hint="Make the collective once, in the rank, before the loader is made",
                severity=Severity.ERROR if workers else Severity.WARNING,
                related=(self.ctx.location(function.name, "runs for each item or batch"),),
                facts={"place": place, "workers": workers, "collective": event.collectives[0].key},
            )
            return

    def _why(self, place: str, workers: int | None) -> str:
        what = {"getitem": "makes the items", "collate": "makes the batches", "init": "begins the worker"}[place]
        if workers:
            return f"it {what} in {workers} worker processes, which have no process group: the loader never returns"
        if place == "init":
            return f"it {what} process, which has no process group: the loader never returns"
        return f"it {what} in worker processes without a process group, or not equally often on every rank"
