"""Each worker process of a loader goes through all items of the stream: every item is trained on once for each worker.

**What.** An `IterableDataset` of the project gives its items without asking which worker it runs in, often divided by
rank only, and its loader has two workers or more.

**Why it hurts.** The loader copies the data set into each worker, and each copy starts at the first item. With eight
workers every item comes eight times in an epoch, in neighbouring batches. Nothing fails: the loss falls faster than it
should, the model overfits, and an epoch takes eight times as long.

**Fix.** Divide by rank and worker together, in `__iter__`: `info = get_worker_info()`, then
`items[rank * info.num_workers + info.id :: world_size * info.num_workers]`; or use `num_workers=1`.

**When it stays quiet.** The code of the data set, or what it calls, knows about workers; a `worker_init_fn`; items or
their order come from the random generators of the process, which differ between workers; fewer than two workers, or a
number that nobody states; data sets of libraries.

**Evidence.** torch 2.13, two gloo ranks, a stream of eight items divided by rank, two workers: each rank gets its four
items twice; divided by rank and worker, once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.reach import reached
from dslint.python.source import Module
from dslint.python.sources import Source
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.undivided import ITERABLE, draws, iterates
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL616",
    name="items-repeated-by-every-worker",
    kind="script",
    severity=Severity.WARNING,
    summary="each worker of a loader gives all items of the stream: every item comes once for each worker",
    markers=(r"IterableDataset", r"DataLoader|Loader\b"),
    references=(
        "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",
        "https://github.com/pytorch/pytorch/issues/33413",
    ),
    depends_on_run=True,
)
_KNOWS_WORKER = re.compile(
    r"(?i)worker_?(?:info|id|idx|index|rank|seed|num)|num_worker_|split_by_worker|worker\.id|getpid|webdataset|\bwds\b"
)

_RANK = re.compile(r"(?i)rank|world|process_index|num_processes")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loader with workers over a stream that does not know them."""
    for found in run.happenings("makes-loader"):
        event = found.event
        workers = _workers(run, event)
        if event.may or event.open or workers < 2 or event.arguments.get("worker_init_fn") is not None:
            continue
        source = event.sources[0] if event.sources else None
        if source is None or source.role != "dataset" or not source.is_own or ITERABLE not in source.bases:
            continue
        pieces = reached(run.machine.program, source.code)
        pieces = [*pieces, *source.code]
        if not iterates(source) or any(_KNOWS_WORKER.search(m.text(node)) or draws(m, node) for m, node in pieces):
            continue
        name = getattr(source.code[0][1], "name", "the data set")
        yield run.finding(
            META,
            event.module,
            event.node,
            f"each of the {workers} workers goes through all items of `{name}`: every item is given {workers} times",
            hint="Ask `get_worker_info()` in `__iter__`, and divide the items by rank and worker",
            related=(
                *(run.location(m, n, "this stream asks for no worker") for m, n in source.code[:1]),
                *(run.location(m, n, "it is divided by rank here") for m, n in _shares(source)),
            ),
            facts={"workers": workers},
        )


def _shares(source: Source) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the lines of a stream that cut out a share of the items by rank."""
    for module, piece in source.code:
        for node in ast.walk(piece):
            is_cut = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
            if is_cut and _RANK.search(module.text(node)):
                yield module, node
                return


def _workers(run: RunQuery, event: Event) -> int:
    """Return how many workers a loader has, of an option its default; 0 where nobody states it."""
    words = run.likely(event.arguments.get("num_workers"))
    return words[0] if words and len(words) == 1 and isinstance(words[0], int) else 0


_STREAM = """\
import json

import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, files):
        self.files = files[dist.get_rank() :: dist.get_world_size()]

    def mine(self):
        %s

    def __iter__(self):
        for path in self.mine():
            with open(path) as lines:
                yield from map(json.loads, lines)


def loader(files, workers):
    return DataLoader(Lines(files), batch_size=8, num_workers=workers)
"""
_TRAIN = """\
import sys

import torch.distributed as dist

from data import loader

dist.init_process_group("nccl")
for batch in loader(sys.argv[1:], %s):
    print(batch)
"""
_DIVIDED = "info = get_worker_info()\n        return self.files[info.id :: info.num_workers]"

EXAMPLES = (
    bad(
        "divided by rank only",
        {"data.py": _STREAM % "return self.files", "train.py": _TRAIN % "4"},
        at="data.py:21 warning",
    ),
    good("divided by rank and worker", {"data.py": _STREAM % _DIVIDED, "train.py": _TRAIN % "4"}),
    good("one worker", {"data.py": _STREAM % "return self.files", "train.py": _TRAIN % "1"}),
    good(
        "items drawn by the generator of each worker",
        {
            "data.py": "import random\n" + _STREAM % "return random.choices(self.files, k=100)",
            "train.py": _TRAIN % "4",
        },
    ),
)
