"""A stream of `datasets` is shuffled without a seed, and divided by node: the library refuses it.

**What.** `stream.shuffle(buffer_size=...)` of an `IterableDataset` gets no `seed`, and `split_dataset_by_node` divides
the same stream over the ranks, before or after.

**Why it hurts.** The shards of the stream are put in an order, and each rank takes its part of it. Without a seed each
process draws an order of its own; the parts would overlap. `datasets` raises `RuntimeError: The dataset doesn't have a
fixed random seed across nodes` as soon as there is more than one rank. With one GPU nothing is seen. A `generator`
does not help: the library asks for the number.

**Fix.** `stream.shuffle(seed=42, buffer_size=...)`, the same number on every rank; `set_epoch` changes the order.

**When it stays quiet.** A seed, also one that dslint does not know; rows that are no stream; a world size of 1; nothing
shows that the stream which is divided is the shuffled one.

**Evidence.** `IterableDataset.__init__` in `datasets/iterable_dataset.py`, releases 2.15 to 4.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.derived import Derived
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL623",
    name="stream-shuffled-without-seed",
    kind="script",
    severity=Severity.WARNING,
    summary="a stream of datasets is shuffled without a seed and divided by node, which raises on several ranks",
    markers=(r"split_dataset_by_node", r"\.shuffle\("),
    versions=("datasets",),
    references=("https://github.com/huggingface/datasets/issues/7163", "datasets/iterable_dataset.py"),
    no_experiment="`datasets` is not part of the machines on which experiments run.",
)
_SPLIT = "datasets.distributed.split_dataset_by_node"
_SHUFFLE = "datasets.IterableDataset.shuffle"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each shuffle without a seed of a stream that is divided by node."""
    if run.context.is_one_process:
        return
    splits = [h.event for h in run.happenings("shards-data") if h.event.api == _SPLIT and _is_of_several(h.event)]
    shuffles = [h.event for h in run.happenings("shuffles") if h.event.api == _SHUFFLE and _has_no_seed(h.event)]
    if not splits or not shuffles:
        return
    for shuffle in shuffles:
        split = next((one for one in splits if _is_behind(run.derived, one, shuffle)), None)
        if split is not None:
            yield _finding(run, shuffle, split)


def _is_of_several(event: Event) -> bool:
    world = event.arguments.get("world_size")
    return not event.may and (world is None or world.constants != (1,))


def _has_no_seed(event: Event) -> bool:
    seed = event.arguments.get("seed")
    return not event.open and not event.may and (seed is None or seed.constants == (None,))


def _is_behind(derived: Derived, split: Event, shuffle: Event) -> bool:
    """Return whether a stream was shuffled before it was divided, or after."""
    whole = split.nodes.get("dataset")
    called = shuffle.node.func if isinstance(shuffle.node, ast.Call) else None
    receiver = called.value if isinstance(called, ast.Attribute) else None
    before = derived.of(split.module, [whole]) if whole is not None else None
    after = derived.of(shuffle.module, [receiver]) if receiver is not None else None
    found = [(before, shuffle.node), (after, split.node)]
    return any(node is n for pieces, node in found for _, piece in pieces or () for n in ast.walk(piece))


def _finding(run: RunQuery, shuffle: Event, split: Event) -> Finding:
    return run.finding(
        META,
        shuffle.module,
        shuffle.node,
        "a stream that is divided by node is shuffled without a seed: `datasets` raises on more than one rank",
        hint="Pass the same `seed` on every rank",
        related=(run.location(split.module, split.node, "divided by node here"),),
    )


_STREAM = """\
import torch.distributed as dist
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader


def batches(files, rank, size, seed):
    stream = load_dataset("json", data_files=files, split="train", streaming=True)
    %s
    return DataLoader(stream.with_format("torch"), batch_size=8)


def main(files):
    dist.init_process_group("gloo")
    for batch in batches(files, dist.get_rank(), dist.get_world_size(), 42):
        print(batch)
"""
_SPLITS = "stream = split_dataset_by_node(stream, rank=rank, world_size=size)"
_CLASS = """\
import os

from datasets import load_dataset
from datasets.distributed import split_dataset_by_node


class Corpus:
    def __init__(self, name, seed=None):
        rows = load_dataset(name, split="train", streaming=True)
        self.rows = self.shuffled(rows.map(len)%s)
        self.part = split_dataset_by_node(self.rows, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

    def shuffled(self, rows%s):
        return rows.shuffle(buffer_size=1000%s)


Corpus("corpus")
"""

EXAMPLES = (
    bad("before it is divided", {"train.py": _STREAM % f"stream = stream.shuffle(buffer_size=1000)\n    {_SPLITS}"},
        "train.py:9 warning"),
    bad("after it", {"train.py": _STREAM % f"{_SPLITS}\n    stream = stream.map(len).shuffle(buffer_size=1000)"},
        "train.py:10 warning"),
    bad("in one expression", {"train.py": _STREAM % (
        "stream = split_dataset_by_node(stream.shuffle(seed=None), rank, size)")}, "train.py:9 warning"),
    bad("a method shuffles", {"train.py": _CLASS % ("", "", "")}, "train.py:14 warning"),
    good("a seed", {"train.py": _STREAM % f"stream = stream.shuffle(seed=seed, buffer_size=1000)\n    {_SPLITS}"}),
    good("a seed that the method gets", {"train.py": _CLASS % (", 7", ", seed", ", seed=seed")}),
    good("only some rows are shown", {
        "train.py": _STREAM % f"{_SPLITS}\n    print(load_dataset('x', streaming=True, split='a').shuffle())"}),
    good("shuffled and not divided", {"train.py": _STREAM % "stream = stream.shuffle(buffer_size=1000)"}),
)  # fmt: skip
