"""The batch size of the whole job is handed to the loader of each rank, undivided.

**What.** A training loader with a `DistributedSampler`, one that accelerate or Lightning divides, or a stream that each
rank of Lightning reads for itself, gets a batch size that the script states for all ranks together: it is called
`global_batch_size` or `total_batch_size`, the help of its option says "per optimizer step" or "over all GPUs", or the
script tests that it is a multiple of the number of processes. The same for `per_device_train_batch_size`.

**Why it hurts.** Every rank loads that many rows for a step. On eight GPUs a step averages over eight times what the
script says: the learning rate belongs to another batch, an epoch has an eighth of the steps, and results change with
the number of GPUs. Nothing fails unless memory ends.

**Fix.** Divide it first: `batch_size=args.global_batch_size // world_size`.

**When it stays quiet.** A size that some code of the project divides; an option whose help speaks of each GPU; loaders
of evaluation, loaders that nothing divides, and `split_batches=True`; names that say nothing; one process.

**Evidence.** torch 2.13: `DataLoader(batch_size=8)` over a `DistributedSampler` of two ranks yields 8 rows on each of
them; 16 take part in the step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.trainingloaders import in_training
from dslint.rules.data.wholebatches import WholeBatches, size_of
from dslint.rules.ranks.intent import intends_several
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import adds_sampler, has_several, is_one_process, trainers
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL735",
    name="whole-batch-on-every-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank loads batches of the size that the script states for all ranks together",
    markers=(
        r"DataLoader|TrainingArguments",
        r"(?i)batch_?size|\bbs\b",
        r"distributed|lightning|accelerat|transformers",
    ),
    references=(
        "https://github.com/official-stockfish/nnue-pytorch/pull/390",
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    depends_on_run=True,
    no_experiment="what a loader gives and what a script states can be compared without a run",
)
_EACH = "per_device_train_batch_size"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each training loader of a rank whose batch is that of the whole job."""
    if is_one_process(run) or not run.has("makes-loader", "training-arguments"):
        return
    sizes = WholeBatches(run)
    taken = _prepared(run)
    for found in run.happenings("makes-loader"):
        place = size_of(found.event) if _is_of_each_rank(run, found, taken) else None
        stated = sizes.stated(*place) if place is not None else None
        if place is not None and stated is not None:
            yield _finding(run, place, *stated)
    for event in (found.event for found in run.happenings("training-arguments")) if intends_several(run) else ():
        node = event.nodes.get(_EACH)
        stated = sizes.stated(event.module, node) if node is not None and not event.may else None
        if node is not None and stated is not None:
            yield _finding(run, (event.module, node), *stated)


def _is_of_each_rank(run: RunQuery, found: Happening, taken: set[object]) -> bool:
    """Return whether each rank certainly trains on a loader of its own share."""
    event = found.event
    if event.may or event.open:
        return False
    made = instances(event.arguments.get("sampler"))
    if made:
        libraries = run.machine.libraries
        is_dealt = all(isinstance(a.cls, str) and libraries.is_class(a.cls, "distributed-sampler") for a in made)
        return is_dealt and _is_shuffled(run, event)
    if in_training(run, found):
        several = trainers(run)
        return bool(several) and all(map(has_several, several)) and adds_sampler(run) is True
    return bool(taken & set(instances(event.result))) and run.has("backward") and _shuffles(event)


def _is_shuffled(run: RunQuery, event: Event) -> bool:
    """Return whether the sampler of a loader shuffles, as those for training do."""
    made = [run.makers.get(atom) for atom in instances(event.arguments.get("sampler"))]
    given = [maker.arguments.get("shuffle") for maker in made if maker is not None]
    return run.has("backward") and all(value is None or value.constants != (False,) for value in given)


def _shuffles(event: Event) -> bool:
    shuffle = event.arguments.get("shuffle")
    return shuffle is not None and shuffle.constants == (True,)


def _prepared(run: RunQuery) -> set[object]:
    """Return what an Accelerator divides, where it takes each batch for that of one process."""
    made = [found.event for found in run.happenings("starts-group") if found.event.api == "accelerate.Accelerator"]
    known = ("split_batches", "dataloader_config", "dispatch_batches")
    if any(event.open or any(name in event.arguments for name in known) for event in made):
        return set()
    if run.context.world_size.get_or(0) < 2 and not intends_several(run):
        return set()
    return {a for f in run.occurrences("prepares") for v in f.event.arguments.values() for a in instances(v)}


def _finding(run: RunQuery, place: tuple[Module, ast.AST], name: str, told: Location) -> Finding:
    module, node = place
    return run.finding(
        META,
        module,
        node,
        f"`{name}` is the batch of the whole job, but each rank loads that many rows: a step takes too many",
        hint="Divide it by the number of processes first",
        related=(told,) if told.span != module.location(node).span else (),
        facts={"name": name},
    )


_DDP = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from data import load


def loader_of(rows, batch_size):
    sampler = DistributedSampler(rows)
    return sampler, DataLoader(rows, batch_size=batch_size, sampler=sampler)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--%s", type=int, default=256, help="%s")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    %s
    sampler, loader = loader_of(load(), %s)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            model(x).mean().backward()


if __name__ == "__main__":
    main()
"""
_STREAM = """\
import lightning as L
import torch
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, path, batch_size, seed):
        self.path, self.batch_size, self.seed = path, batch_size, seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + len(self.path))
        while True:
            yield torch.rand(self.batch_size, 8, generator=generator)


class Data(L.LightningDataModule):
    def __init__(self, args):
        super().__init__()
        self.args = args

    def train_dataloader(self):
        stream = Stream(self.args.data, %s, self.trainer.global_rank)
        return DataLoader(stream, batch_size=None)
"""
_LIGHTNING = """\
import argparse

import lightning as L

from data import Data
from model import Net

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--batch-size", type=int, default=64, help="%s")
args = parser.parse_args()
trainer = L.Trainer(accelerator="gpu", devices=4, strategy="ddp")
trainer.fit(Net(), datamodule=Data(args))
"""
_PER_STEP = "rows used in one optimizer step"


def _ddp(name: str, words: str, size: str, more: str = "pass") -> dict[str, str]:
    return {"train.py": _DDP % (name, words, more, size)}


EXAMPLES = (
    bad("by its name", _ddp("global-batch-size", "", "args.global_batch_size"), "train.py:13 warning"),
    bad("by the help of its option", _ddp("batch-size", "summed over all GPUs", "args.batch_size"), "train.py:13"),
    bad(
        "by a test",
        _ddp("batch-size", "", "args.batch_size", "assert args.batch_size % dist.get_world_size() == 0"),
        "train.py:13",
    ),
    bad(
        "a stream of each rank",
        {"train.py": _LIGHTNING % _PER_STEP, "data.py": _STREAM % "self.args.batch_size"},
        "data.py:22 warning",
    ),
    bad(
        "arguments of a Trainer",
        {
            "train.py": "import os\n\nfrom transformers import Trainer, TrainingArguments\n\n"
            "rank = int(os.environ['LOCAL_RANK'])\ntotal_batch_size = int(os.environ['TOTAL'])\n"
            "args = TrainingArguments('out', per_device_train_batch_size=total_batch_size)\n"
        },
        "train.py:7 warning",
    ),
    good("divided", _ddp("global-batch-size", "", "args.global_batch_size // dist.get_world_size()")),
    good(
        "divided in place",
        _ddp("total-batch-size", "", "args.total_batch_size", "args.total_batch_size //= dist.get_world_size()"),
    ),
    good("for each GPU", _ddp("batch-size", "batch size per GPU, summed over all GPUs for the log", "args.batch_size")),
    good("nothing is said of it", _ddp("batch-size", "size of a batch", "args.batch_size")),
    good(
        "a share for each rank",
        {
            "train.py": _LIGHTNING % _PER_STEP,
            "data.py": _STREAM % "self.args.batch_size // self.trainer.world_size",
        },
    ),
)
