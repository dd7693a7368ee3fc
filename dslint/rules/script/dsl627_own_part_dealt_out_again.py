"""Each process cuts its own part out of the data, and a library deals it out once more.

**What.** The data set of a loader holds the part of one process already: a slice by `accelerator.process_index`,
`dataset.shard(...)`, `select` of a range, a class that keeps `files[rank::world]`. The loader then goes through
`accelerator.prepare`. Or the part is the `train_dataset` of a Trainer or the `training_data` of `deepspeed.initialize`,
which distribute themselves.

**Why it hurts.** A prepared loader takes what it reads for the data of the whole job. Of N processes each gets every
N-th batch of its own part, and N-1 of N items are never seen; an iterable data set is read by the first process alone,
whose part all get. Nothing raises, and an epoch is N times too short.

**Fix.** Leave dealing out to accelerate and give it all of the data. Or do not prepare this loader, and move its
batches with `.to(accelerator.device)`.

**When it stays quiet.** The loader is not prepared, or with `num_processes=1`; the data set knows the rank, and no code
in sight cuts out a part; a Trainer that makes its loader itself, or gets a stream; one process. A `DistributedSampler`
is DSL267.

**Evidence.** Two gloo ranks, accelerate 1.15, 64 items in batches of 4: with parts of 32 items each rank makes 4 steps
instead of 8, and 32 items are seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.reach import reached
from dslint.python.sources import Source
from dslint.python.values import Instance
from dslint.python.varies import LOST, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.undivided import ITERABLE
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL627",
    name="own-part-dealt-out-again",
    kind="script",
    severity=Severity.WARNING,
    summary="each process cuts its part out of the data, and accelerate, a Trainer or an engine deals it out once more",
    markers=(r"accelerat|transformers|trl|deepspeed", r"prepare(?:_data_loader)?\(|Trainer\(|initialize\("),
    references=(
        "https://github.com/huggingface/accelerate/issues/3547",
        "https://github.com/huggingface/accelerate/issues/3336",
    ),
    depends_on_run=True,
)
_RANK = r"[^\]\n]*(?:rank|process_index|\bindex\b|\bshard\b|shard_?i)[^\]\n]*"
# Code that cuts out the part of one rank.
_CUTS = re.compile(
    rf"\[{_RANK}::|\[{_RANK}:[^\]\n]*\]|islice\(|%\s*(?:self\.)?\w*(?:world|num_|size|procs|shards|replicas)|"
    r"\.shard\(|split_dataset_by_node|array_split|\.select\(|split_between_processes|Subset\(",
    re.I,
)
# A Trainer of the project makes its loader itself.
_OVERRIDES = re.compile(r"def (?:get_train_dataloader|_get_train_sampler|get_batch_samples)\b")
_SAMPLER = "torch.utils.data.DistributedSampler"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each prepared loader whose data set is a part of its own on each rank."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for event in (found.event for found in run.happenings("prepares")):
        if not event.api.startswith("accelerate.") or event.open or "num_processes" in event.arguments:
            continue
        for value in event.arguments.values():
            atom = value.single
            loader = run.makers.get(atom) if isinstance(atom, Instance) else None
            if loader is None or "makes-loader" not in loader.tags or loader.open or id(loader.node) in seen:
                continue
            if loader.api.startswith("accelerate."):
                continue
            part = next((source for source in loader.sources or () if _is_part(run, loader, source)), None)
            if part is not None:
                seen.add(id(loader.node))
                yield _finding(run, event, loader, part)
    yield from _handed(run)


def _handed(run: RunQuery) -> Iterator[Finding]:
    """Yield what a Trainer or `deepspeed.initialize` deals out itself, although each rank has a part of its own."""
    if any(module.search(_OVERRIDES) for module in run.machine.program.modules()):
        return
    for found in run.happenings("trainer", "makes-engine"):
        event, name = found.event, "train_dataset" if "trainer" in found.event.tags else "training_data"
        is_stream = any(ITERABLE in source.bases for source in event.sources)
        part = next((source for source in event.sources if _is_part(run, event, source, name)), None)
        if part is not None and not is_stream and not event.may:
            yield _finding(run, event, event, part, name)


def _is_part(run: RunQuery, loader: Event, source: Source, name: str = "dataset") -> bool:
    """Return whether a data set is certainly cut by the rank."""
    if source.role != "dataset" or not source.varies & RANKED or source.varies & LOST:
        return False
    if _SAMPLER in source.bases or any(each in loader.arguments for each in ("sampler", "batch_sampler")):
        return False
    given = loader.arguments.get(name)
    if given is not None and run.machine.shape(given) & RANKED:
        return True  # a number of items that differs by rank
    around = function_around(loader.module, loader.node) or loader.module.tree
    place = run.machine.origin(given) if given is not None else None
    code = source.code or ((loader.module, around), *((place,) if place is not None else ()))
    return any(_CUTS.search(_without_text(node)) for _, node in reached(run.machine.program, code))


def _without_text(node: ast.AST) -> str:
    return re.sub(r"\"\"\"(?:.|\n)*?\"\"\"", "", ast.unparse(node))


def _finding(run: RunQuery, event: Event, loader: Event, part: Source, name: str = "dataset") -> Finding:
    related = [run.location(event.module, event.node, "divided again")]
    related += run.origin(loader.arguments.get(name), "here the rank comes in")[:1]
    who = event.api.rpartition(".")[2]
    return run.finding(
        META,
        loader.module,
        loader.nodes.get(name, loader.node),
        f"each process holds its own part of the data, and `{who}` divides it again: most is never seen",
        hint=f"Give `{who}` all of the data" + (", or do not prepare this loader" if name == "dataset" else ""),
        related=tuple(related),
        varies=part.varies,
        facts={"argument": name},
    )


_TRAIN = """\
import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader


def rows_of(accelerator):
    rows = load_dataset("json", data_files="train.jsonl", split="train")
%s
    return rows


def main(model, optimizer):
    accelerator = Accelerator()
    loader = DataLoader(rows_of(accelerator), batch_size=8, shuffle=True)
    model, optimizer%s = accelerator.prepare(model, optimizer%s)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()


main(torch.nn.Linear(4, 1), None)
"""
_SHARD = "    rows = rows.shard(num_shards=accelerator.num_processes, index=accelerator.process_index)"
_RANGE = """\
    size = len(rows) // accelerator.num_processes
    rows = rows.select(range(size * accelerator.process_index, size * (accelerator.process_index + 1)))"""
_SCORE = """\
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader


def scores(model):
    accelerator = Accelerator()
    rows = load_dataset("json", data_files="test.jsonl", split="train")
    rows = rows.shard(num_shards=accelerator.num_processes, index=accelerator.process_index)
    model = accelerator.prepare(model)
    return [model(batch.to(accelerator.device)).tolist() for batch in DataLoader(rows, batch_size=8)]
"""
_STREAM = """\
from torch.utils.data import IterableDataset


class Lines(IterableDataset):
    def __init__(self, files, rank, world):
        self.files = files%s
        self.rank = rank

    def __iter__(self):
        for file in self.files:
            with open(file) as lines:
                yield from lines
"""
_STREAMED = """\
from accelerate import Accelerator
from stream import Lines
from torch.utils.data import DataLoader

accelerator = Accelerator()
data = Lines(["a", "b", "c", "d"], accelerator.process_index, accelerator.num_processes)
loader = accelerator.prepare(DataLoader(data, batch_size=8))
"""
_TRAINER = """\
import os

from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main():
    rows = load_dataset("json", data_files="train.jsonl", split="train")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    part = rows%s
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model=model, args=TrainingArguments("out"), train_dataset=part).train()


main()
"""

EXAMPLES = (
    bad("a Trainer", {"train.py": _TRAINER % ".shard(num_shards=world, index=rank)"}, "train.py:12 warning"),
    good("a Trainer with all rows", {"train.py": _TRAINER % ".shuffle(seed=3)"}),
    bad("A shard", {"train.py": _TRAIN % (_SHARD, ", loader", ", loader")}, "train.py:15"),
    bad("A range of rows", {"train.py": _TRAIN % (_RANGE, ", loader", ", loader")}, "train.py:16"),
    bad("Files of a class", {"stream.py": _STREAM % "[rank::world]", "train.py": _STREAMED}, "train.py:7"),
    good("The loader is not prepared", {"score.py": _SCORE}),
    good("All of the data", {"train.py": _TRAIN % ("    rows = rows.shuffle(seed=1)", ", loader", ", loader")}),
    good("The class knows the rank and keeps all files", {"stream.py": _STREAM % "", "train.py": _STREAMED}),
)
