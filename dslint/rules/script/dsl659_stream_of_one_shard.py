"""A data set becomes a stream of one shard, and every rank makes all its items to keep its own.

**What.** `dataset.to_iterable_dataset()` without `num_shards`, then `map(...)`, then
`split_dataset_by_node(stream, rank, world_size)`.

**Why it hurts.** Where the shards do not come out even among the ranks, `split_dataset_by_node` leaves every rank all
of them: each runs `map` for every item and discards all but one of `world_size`. The data is right, but each GPU
waits for the tokenizing of the whole corpus. Of several workers of a loader one alone has anything to do.

**Fix.** `to_iterable_dataset(num_shards=world_size * max(1, num_workers))`.

**When it stays quiet.** A number of shards is given; nothing is mapped before the split; the split comes before the
stream; a run of one process.

**Evidence.** datasets 5.2.0, sixteen items, four ranks: rank 0 maps sixteen items of a stream of one shard and keeps
0, 4, 8 and 12; of a stream of four shards it maps four.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.derived import Derived, Piece
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL659",
    name="stream-of-one-shard",
    kind="script",
    severity=Severity.WARNING,
    summary="a stream of one shard is divided among the ranks: each rank maps all items and keeps its own",
    markers=(r"to_iterable_dataset", r"split_dataset_by_node"),
    alone=(r"to_iterable_dataset", r"split_dataset_by_node"),
    references=(
        "https://huggingface.co/docs/datasets/use_with_pytorch#stream-data",
        "https://github.com/huggingface/datasets/issues/5961",
    ),
    depends_on_run=True,
    no_experiment="how many items a rank maps can be counted without a second rank",
)
_SPLIT = "datasets.distributed.split_dataset_by_node"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each stream of one shard that is mapped and then divided."""
    if run.context.is_one_process:
        return
    seen: set[ast.AST] = set()
    for found in run.happenings("shards-data"):
        event = found.event
        node = event.nodes.get("dataset")
        if event.api != _SPLIT or node is None:
            continue
        pieces = run.derived.of(event.module, [node]) or []
        calls = [(module, n) for module, piece in pieces for n in ast.walk(piece) if isinstance(n, ast.Call)]
        made = [call for call in calls if _is_method(call[1], "to_iterable_dataset")]
        if not made or not all(_is_single(call) for _, call in made) or not _is_mapped(calls, run.derived):
            continue
        for place in made:
            if place[1] not in seen:
                seen.add(place[1])
                yield _finding(run, place, (event.module, node))


def _is_method(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == name


def _is_single(call: ast.Call) -> bool:
    """Return whether a call certainly makes one shard."""
    given = [*call.args, *(k.value for k in call.keywords)]
    return all(isinstance(value, ast.Constant) and value.value == 1 for value in given)


def _is_mapped(calls: list[tuple[Module, ast.Call]], derived: Derived) -> bool:
    """Return whether a stream, and not the data set before, is mapped."""
    for module, call in calls:
        if not _is_method(call, "map") or not isinstance(call.func, ast.Attribute):
            continue
        behind = derived.of(module, [call.func.value]) or []
        inner = (n for _, piece in behind for n in ast.walk(piece) if isinstance(n, ast.Call))
        if any(_is_method(n, "to_iterable_dataset") for n in inner):
            return True
    return False


def _finding(run: RunQuery, made: Piece, split: Piece) -> Finding:
    return run.finding(
        META,
        *made,
        f"`{run.text(*made)}` makes a stream of one shard: every rank maps all items and drops the others'",
        hint="Pass `num_shards=world_size * max(1, num_workers)`",
        related=(run.location(*split, "divided here"),),
    )


_STREAM = """\
import torch.distributed as dist
from datasets import load_from_disk
from datasets.distributed import split_dataset_by_node


def corpus(path, tokenize):
    dataset = load_from_disk(path)
%s
    return split_dataset_by_node(stream, rank=dist.get_rank(), world_size=dist.get_world_size())
"""

EXAMPLES = (
    bad(
        "one shard",
        {
            "data.py": _STREAM % "    stream = dataset.to_iterable_dataset()\n    stream = stream.shuffle(seed=3)\n"
            "    stream = stream.map(tokenize)"
        },
        "data.py:8",
    ),
    bad(
        "in one row",
        {"data.py": _STREAM % "    stream = dataset.to_iterable_dataset(num_shards=1).map(tokenize)"},
        "data.py:8",
    ),
    good(
        "a shard for each rank",
        {
            "data.py": _STREAM
            % "    stream = dataset.to_iterable_dataset(num_shards=dist.get_world_size()).map(tokenize)"
        },
    ),
    good("nothing is mapped", {"data.py": _STREAM % "    stream = dataset.to_iterable_dataset()"}),
    good(
        "mapped before it becomes a stream",
        {"data.py": _STREAM % "    stream = dataset.map(tokenize).to_iterable_dataset()"},
    ),
)
