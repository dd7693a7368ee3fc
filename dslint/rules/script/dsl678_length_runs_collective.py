"""Asking for a length runs a collective, and progress bars ask for it on one rank alone.

**What.** `__len__` of a sampler, data set or loader (or a property of it) gathers or reduces something over the ranks
each time that somebody asks.

**Why it hurts.** It works as long as all ranks ask together. But libraries ask where one rank is alone: the progress
bar of `transformers.Trainer` calls `len(eval_dataloader)` on rank 0 only, loggers and debuggers do the same. Rank 0
then waits in the collective of the length, the others continue to the next one, and the two do not match: the job
hangs, or takes one result for the other.

**Fix.** Run the collective once, where all ranks are together (in the constructor, in `set_epoch`), and return the
number that was kept.

**When it stays quiet.** The function keeps what it has found in a field and asks for that first; collectives in
`__init__`, `set_epoch` or `__iter__`; classes that give no items; one process.

**Evidence.** Two gloo ranks: rank 0 asks for the length alone and is in `all_gather_object`, rank 1 continues to an
`all_reduce`. `ProgressCallback.on_prediction_step` in transformers/trainer_callback.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event, events, walk
from dslint.python.source import Module
from dslint.python.values import Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL678",
    name="length-runs-collective",
    kind="script",
    severity=Severity.WARNING,
    summary="`__len__` of a sampler or data set runs a collective, and progress bars ask for it on rank 0 alone",
    markers=(r"def __len__|@(?:\w+\.)?(?:cached_)?property", r"distributed|accelerat|lightning|\bdist\b"),
    references=("https://github.com/axolotl-ai-cloud/axolotl/pull/1974",),
    depends_on_run=True,
)
_COLLECTIVES = frozenset({"collective", "barrier", "object-collective"})
_GROUPS = frozenset({"starts-group", "makes-group", "destroys-group", "wraps-model", "makes-engine", "prepares"})
_ITEMS = ("__iter__", "__getitem__", "__next__")
_LENGTHS = re.compile(r"^(?:len|length|num_\w+|total\w*|size|steps\w*|\w+_(?:len|length|steps|batches|samples))$")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each length whose code runs a collective whenever it is asked for."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        for call in walk(tree):
            function = call.function if isinstance(call, Call) else None
            if not isinstance(call, Call) or not isinstance(function, Function) or id(function.node) in seen:
                continue
            if not _is_length(function):
                continue
            event = next((e for e in events(call.body) if e.tags & _COLLECTIVES and not e.tags & _GROUPS), None)
            if event is not None and not event.may and not _keeps(call) and _gives_items(function):
                seen.add(id(function.node))
                yield _finding(run, function.module, function.node, event)


def _is_length(function: Function) -> bool:
    """Return whether a function is named as one that says how many items there are."""
    node = function.node
    if not isinstance(node, ast.FunctionDef):
        return False
    is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    if "cached" in "".join(map(ast.unparse, node.decorator_list)):
        return False
    return node.name == "__len__" or bool(is_property and _LENGTHS.search(node.name))


def _gives_items(function: Function) -> bool:
    """Return whether the class of a method gives items, too."""
    node = function.node
    around = [n for n in function.module.nodes_of(ast.ClassDef) if node in n.body]
    names = {part.name for cls in around for part in cls.body if isinstance(part, ast.FunctionDef)}
    return bool(names & set(_ITEMS))


def _keeps(call: Call) -> bool:
    """Return whether the code behind a length keeps something in a field: it may ask once only."""
    calls = [node for node in walk(call) if isinstance(node, Call) and isinstance(node.function, Function)]
    nodes = [node.function.node for node in calls if isinstance(node.function, Function)]
    return any(
        isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
        for node in nodes
        for inner in ast.walk(node)
    )


def _finding(run: RunQuery, module: Module, node: ast.AST, event: Event) -> Finding:
    name = event.api.rpartition(".")[2]
    asked = getattr(node, "name", "")
    return run.finding(
        META,
        module,
        node,
        f"each call of `{asked}` runs `{name}`: a progress bar that asks on rank 0 alone hangs",
        hint="Run the collective once where all ranks are together, and return the number that was kept",
        related=(run.location(event.module, event.node, "needs every rank"),),
        facts={"asks": "length"},
    )


_PACKING = """\
import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader


class Packed(BatchSampler):
    def __init__(self, lengths, rank, world):
        self.lengths, self.rank, self.world = lengths, rank, world
        %s

    def bins(self):
        return [[at] for at in range(self.rank, len(self.lengths), self.world)]

    def common(self):
        counts = [None] * self.world
        dist.all_gather_object(counts, len(self.bins()))
        return min(counts)

    def __iter__(self):
        yield from self.bins()

    def __len__(self):
        return %s


def build(data, lengths):
    sampler = Packed(lengths, dist.get_rank(), dist.get_world_size())
    return DataLoader(data, batch_sampler=sampler)
"""
_STREAM = """\
import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset


class Rows(IterableDataset):
    def __init__(self, rows):
        self.rows = rows[dist.get_rank() :: dist.get_world_size()]

    def __iter__(self):
        return iter(self.rows)

    @property
    def num_batches(self):
        count = torch.tensor(len(self.rows))
        dist.all_reduce(count, op=dist.ReduceOp.MIN)
        return int(count)
"""
_KEPT = """\
        if self.kept is None:
            self.kept = self.common()
        return self.kept
"""

EXAMPLES = (
    bad("A batch sampler", {"data.py": _PACKING % ("pass", "self.common()")}, at="data.py:22"),
    bad("A property of a stream", {"data.py": _STREAM}, at="data.py:14"),
    good("Gathered once", {"data.py": _PACKING % ("self.kept = self.common()", "self.kept")}),
    good(
        "Kept at the first call",
        {"data.py": (_PACKING % ("self.kept = None", "0")).replace("        return 0\n", _KEPT)},
    ),
    good("One process", {"data.py": _PACKING % ("pass", "self.common()")}, world_size=1),
)
