"""Every rank trains on the same items: what gives the items of the training loader does not know the rank.

**What.** A training loop over several ranks runs over a loader whose items and order come from code without the rank:
an `IterableDataset` that divides its items among the workers of the loader only, or draws them from a generator that
every rank seeds alike; a stream of datasets that `split_dataset_by_node` did not divide; an own sampler or batch
sampler that was made without rank and number of ranks; no sampler at all, because a helper adds one for another
strategy only. (DSL254 speaks where nobody has thought of a sampler.)

**Why it hurts.** Nothing fails. Every rank goes through all items, so eight GPUs need as long for an epoch as one.
Where the order is the same, all ranks compute the same gradients, and averaging them gains nothing.

**Fix.** Divide by rank and worker together: `items[rank * workers + worker :: world_size * workers]`; put the rank
into the seed of the generator; give the sampler the rank and the number of ranks, or use `DistributedSampler`. Parts
of different length need `Join`, or a cut to the shortest (DSL207).

**When it stays quiet.** The rank takes part in the data set, the sampler or what they are made of; a distributed
sampler; random draws from the generator of the process, which each rank may seed for itself; loaders that accelerate,
Fabric, a Trainer or DeepSpeed gets hold of; Lightning, where it adds a sampler itself; a `worker_init_fn` of an
iterable data set; model, tensor, pipeline or sequence parallel scripts; evaluation; one process; anything that is not
certain.

**Evidence.** `IterableDataset` of datasets asks for the worker of the loader, and for ranks only what
`split_dataset_by_node` has told it (huggingface/datasets issue 4694). Two gloo ranks, torch 2.13: with a data set that
divides by worker only, both ranks see the same items and get equal gradients; divided by rank and worker, they share
them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.sources import Source
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.undivided import ITERABLE, undivided
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL281",
    name="training-items-same-on-every-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank trains on the same items: data set or sampler of the training loader do not know the rank",
    markers=(r"DistributedDataParallel|DDP|deepspeed|accelerat|lightning|FullyShardedDataParallel|fully_shard|FSDP",),
    references=(
        "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",
        "https://github.com/pyannote/pyannote-audio/issues/526",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/4836",
        "https://github.com/huggingface/datasets/issues/4694",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each training loader whose items and order do not depend on the rank, unless nobody thought of it."""
    for found in undivided(run):
        if not found.is_forgotten:  # DSL254
            yield _finding(run, found.happening, found.source)


def _finding(run: RunQuery, happening: Happening, source: Source) -> Finding:
    event = happening.event
    name = source.path.rpartition(".")[2]
    streams = not source.is_own and ITERABLE in source.bases
    if source.code and isinstance(source.code[0][1], ast.ClassDef):
        name = source.code[0][1].name
    word = {"dataset": "data set", "sampler": "sampler", "batch_sampler": "batch sampler"}[source.role]
    how = (
        "does not know the rank"
        if source.role != "dataset" or ITERABLE in source.bases
        else "is not divided by a sampler"
    )
    related = [run.location(m, n, f"this {word} asks for no rank") for m, n in source.code[:1]]
    if streams:
        loads = (h.event for h in run.happenings("downloads") if h.event.api == "datasets.load_dataset")
        related += [run.location(e.module, e.node, "the stream begins here") for e in loads if _streams(e)]
    related += [run.location(call.module, call.node, "this call makes the loader") for call in happening.calls[-1:]]
    return run.finding(
        META,
        event.module,
        event.node,
        f"Every rank trains on the same items: the {word} `{name}` {how}",
        hint="Divide the stream with `split_dataset_by_node`"
        if streams
        else "Divide the items by rank and number of ranks (an iterable data set also by worker), or use "
        "`DistributedSampler`",
        related=tuple(related),
        varies=source.varies,
        facts={"role": source.role},
    )


def _streams(event: Event) -> bool:
    return "streaming" in event.arguments and event.arguments["streaming"].constants == (True,)


_STREAM = """\
import random

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, files, seed):
        self.files = files
        self.seed = seed

    def __iter__(self):
        %s
        for file in files:
            with open(file) as f:
                yield from f
"""
_BY_WORKER = """\
worker = get_worker_info()
        files = self.files if worker is None else self.files[worker.id :: worker.num_workers]"""
_BY_RANK = """\
worker = get_worker_info()
        share = dist.get_rank() * worker.num_workers + worker.id
        files = self.files[share :: dist.get_world_size() * worker.num_workers]"""
_HELPED = """\
files = share(self.files)


def share(files):
    return files[dist.get_rank() :: dist.get_world_size()]


class Rest:
    def __iter__(self):
        files = []"""
_PARTS = """\
import torch.distributed as dist


def mine(files):
    return files[dist.get_rank() :: dist.get_world_size()]
"""
_DRAWN = """\
rng = random.Random(self.seed)
        files = rng.choices(self.files, k=100)"""
_TRAIN = """\
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from data import %s


def train(model, optimizer, loader):
    with Join([model]):
        for step, batch in enumerate(loader):
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def main():
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    %s
    train(model, optimizer, loader)


if __name__ == "__main__":
    main()
"""
_LOADER = "loader = DataLoader(Lines(sys.argv[1:], 3), batch_size=8, num_workers=2)"
_ALONE = _LOADER.replace("num_workers=2", "num_workers=1")
_SAMPLER = """\
import random

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler


class Clips(Dataset):
    def __init__(self, path):
        with open(path) as f:
            self.rows = f.readlines()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Buckets(Sampler):
    def __init__(self, lengths, rank=0, replicas=1):
        self.batches = [[i] for i in lengths]
        self.rank, self.replicas = rank, replicas

    def __iter__(self):
        random.Random(7).shuffle(self.batches)
        return iter(self.batches[self.rank : len(self.batches) // self.replicas * self.replicas : self.replicas])


def make(path, strategy):
    clips = Clips(path)
    options = {"batch_size": 4}
    if strategy == "ddp":
        options["sampler"] = DistributedSampler(clips)
    return DataLoader(clips, **options)


def buckets(path, *place):
    clips = Clips(path)
    return DataLoader(clips, batch_sampler=Buckets([1, 2, 3]%s))
"""
_LIGHTNING = """\
import lightning as L
import torch
from torch.utils.data import DataLoader

from data import Buckets, Clips


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Clips("a.txt"), batch_sampler=Buckets([1, 2]))


class Net(L.LightningModule):
    def training_step(self, batch, index):
        return batch.sum()


def main():
    trainer = L.Trainer(strategy="ddp", devices=%s, use_distributed_sampler=%s)
    trainer.fit(Net(), datamodule=Data())


if __name__ == "__main__":
    main()
"""
_MADE = 'loader = make("clips.txt", "%s")'

_HF = """\
import torch
import torch.distributed as dist
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main(net):
    dist.init_process_group("nccl")
    stream = load_dataset("json", data_files="*.jsonl", split="train", streaming=True)
    stream = stream.shuffle(seed=%s, buffer_size=1000)%s
    loader = DataLoader(stream.map(str.lower), batch_size=8)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _, batch in zip(range(1000), loader):
        model(batch).mean().backward()
        optimizer.step()


main(torch.nn.Linear(8, 8))
"""
_NODES = "\n    stream = split_dataset_by_node(stream, dist.get_rank(), dist.get_world_size())"

EXAMPLES = (
    bad("a stream of datasets", {"train.py": _HF % (13, "")}, at="train.py:13 warning"),
    good("a stream that is divided", {"train.py": _HF % (13, _NODES)}),
    good("a stream that each rank shuffles its own way", {"train.py": _HF % ("13 + dist.get_rank()", "")}),
    bad(
        "a stream that is divided among the workers only",
        {"data.py": _STREAM % _BY_WORKER, "train.py": _TRAIN % ("Lines", _LOADER)},
        at="train.py:25 warning",
    ),
    bad(
        "files are drawn with the same seed on every rank",
        {"data.py": _STREAM % _DRAWN, "train.py": _TRAIN % ("Lines", _LOADER)},
        at="train.py:25 warning",
    ),
    bad(
        "a helper adds a sampler for another strategy only",
        {"data.py": _SAMPLER % "", "train.py": _TRAIN % ("make", _MADE % "deepspeed")},
        at="data.py:34 warning",
    ),
    bad(
        "a batch sampler that was not told the rank",
        {"data.py": _SAMPLER % "", "train.py": _TRAIN % ("buckets", 'loader = buckets("clips.txt")')},
        at="data.py:39 warning",
    ),
    bad(
        "Lightning is told to add no sampler",
        {"data.py": _SAMPLER % "", "train.py": _LIGHTNING % ("4", "False")},
        at="train.py:10 warning",
    ),
    good(
        "divided by rank and worker",
        {"data.py": _STREAM % _BY_RANK, "train.py": _TRAIN % ("Lines", _LOADER)},
    ),
    good(
        "divided by rank in a function that the data set calls",
        {"data.py": _STREAM % _HELPED, "train.py": _TRAIN % ("Lines", _ALONE)},
    ),
    good(
        "divided in a module that a function imports",
        {
            "data.py": _STREAM % "from tools import parts\n        files = parts.mine(self.files)",
            "tools/__init__.py": "",
            "tools/parts.py": _PARTS,
            "train.py": _TRAIN % ("Lines", _ALONE),
        },
    ),
    good(
        "the files are the rank's own",
        {
            "data.py": _STREAM % _BY_WORKER,
            "train.py": _TRAIN
            % ("Lines", _LOADER.replace("argv[1:]", "argv[1 + dist.get_rank() :: dist.get_world_size()]")),
        },
    ),
    good(
        "the seed is the rank's own",
        {
            "data.py": _STREAM % _DRAWN,
            "train.py": _TRAIN % ("Lines", _ALONE.replace(", 3)", ", 3 + dist.get_rank())")),
        },
    ),
    good(
        "the sampler of this strategy",
        {
            "data.py": _SAMPLER % "",
            "train.py": (_TRAIN % ("make", _MADE % "ddp")).replace(
                "in enumerate(loader):", "in enumerate(loader):\n            loader.sampler.set_epoch(step)"
            ),
        },
    ),
    good(
        "the batch sampler knows the rank",
        {
            "data.py": _SAMPLER % ", dist.get_rank(), dist.get_world_size()",
            "train.py": _TRAIN % ("buckets", 'loader = buckets("clips.txt")'),
        },
    ),
    good("one process", {"data.py": _SAMPLER % "", "train.py": _LIGHTNING % ("1", "False")}),
    good(
        "one process of torchrun", {"data.py": _STREAM % _DRAWN, "train.py": _TRAIN % ("Lines", _ALONE)}, world_size=1
    ),
)
