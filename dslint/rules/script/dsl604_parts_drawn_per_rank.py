"""Every process draws by itself which items are held out, and the ranks then share them out.

**What.** `random_split` without a generator, a `Subset` of drawn places, or a list of the items that a draw keeps
(`if random.random() < 0.3`) is made in every process, and nothing seeds the ranks alike (DSL257 tells seeds that hold
the rank). A `DistributedSampler`, accelerate or Lightning then shares the part out. Or the split has a seed that nobody
sets by default: `default_rng(args.seed)` with `--seed` `None`, `seed: null` in all YAML files of the project, or
`if args.seed is not None: seed_everything(args.seed)` before a draw without a seed of its own.

**Why it hurts.** Each process begins with another state of its generators. The parts differ: what one rank holds out
for the validation another trains on, so that the validation tells how well the model remembers. The sampler distributes
places in another part on each rank: some items come twice, and others never. Nothing fails, unless chance decides how
many items there are: then ranks have different numbers of batches, and those with more wait for the others.

**Fix.** `random_split(data, lengths, generator=torch.Generator().manual_seed(42))`, or one seed for all ranks before
the draw: `seed_everything(42)`, `torch.manual_seed(42)`.

**When it stays quiet.** A generator that is passed; anything that seeds, or may by its name; parts that depend on
the rank or on other causes; a draw before processes are spawned; a module without the script that calls it; one
process.

**Evidence.** Two gloo ranks, torch 2.13, nothing seeded: the parts differ, and items that one rank holds out are in
the training part of the other; with a seeded generator the parts are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.ownsplits import own_splits
from dslint.rules.data.unsetseeds import unset_seeds
from dslint.rules.examples.splitscripts import LISTS, SETTINGS
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL604",
    name="parts-drawn-per-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank draws by itself which items are held out: what one validates on, others train on",
    markers=(r"DistributedDataParallel|DDP|deepspeed|accelerat|lightning|FullyShardedDataParallel|fully_shard|FSDP",),
    references=(
        "https://pytorch.org/docs/stable/data.html#torch.utils.data.random_split",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/18638",
    ),
    also_told_by=("DSL257",),
    depends_on_run=True,
)

_HELD_OUT = "This draw has no common seed: each rank holds out other items, and trains on those of the others"
_UNSET = (
    "Nobody sets the seed of this split by default: each rank holds out other items, and trains on those of the others"
)
_COUNTED = (
    "Each rank draws other items by itself, and another number of them: ranks with more batches wait for the others"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where parts are drawn that all ranks should hold alike."""
    if run.context.is_one_process:
        return
    for module, node, loader, is_counted in own_splits(run):
        yield run.finding(
            META,
            module,
            node,
            _COUNTED if is_counted else _HELD_OUT,
            hint="Draw with a seed that all ranks share: `random.Random(42)`"
            if is_counted
            else "Pass `generator=torch.Generator().manual_seed(42)`, or seed all ranks alike before the draw",
            related=(run.location(loader.module, loader.node, "the ranks divide what this loader holds"),),
            facts={"library": "torch"},
        )
    for event, reasons in unset_seeds(run):
        yield run.finding(
            META,
            event.module,
            event.node,
            _UNSET,
            hint="Give the seed of the split a number by default (`42`), or draw on one rank and broadcast",
            related=tuple(reasons),
            facts={"library": "torch"},
        )


_DATA = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, Subset, random_split
from torchvision.datasets import ImageFolder


def loader(folder):
    items = ImageFolder(folder)
    train, _ = %s
    return DataLoader(train, 32, sampler=DistributedSampler(train))


def cut(items, order):
    return Subset(items, order[100:]), Subset(items, order[:100])
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from data import loader


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    %s
    model = DistributedDataParallel(torch.nn.Linear(4, 2).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train = loader("images")
    for epoch in range(3):
        train.sampler.set_epoch(epoch)
        for images, labels in train:
            torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda()).backward()
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
_LIGHTNING = """\
import lightning as L
import torch
from torch.utils.data import DataLoader, random_split
from torchvision.datasets import ImageFolder


class Images(L.LightningDataModule):
    def setup(self, stage=None):
        self.train, self.val = random_split(ImageFolder("images"), [0.9, 0.1])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=32, shuffle=True)


class Net(L.LightningModule):
    def training_step(self, batch, index):
        return self.layer(batch[0]).mean()


if __name__ == "__main__":
    %sL.Trainer(devices=4, strategy="%s").fit(Net(), datamodule=Images())
"""
_DRAW = "random_split(items, [0.9, 0.1])"


def _files(draw: str = _DRAW, seed: str = "pass") -> dict[str, str]:
    return {"data.py": _DATA % draw, "train.py": _TRAIN % seed}


_KEPT = """\
import random

from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, at):
        return self.rows[at]


def loader(path):
    source = %s
    rows = [line for line in open(path) if source.random() < 0.3]
    data = Rows(rows)
    return DataLoader(data, 32, sampler=DistributedSampler(data))
"""
_LOOP = """\
import numpy as np
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, at):
        return self.rows[at]


def loader(path):
    kept = []
    for line in open(path):
        if np.random.rand() > 0.3:
            continue
        kept.append(line)
    # Each process has kept others.
    data = Rows(kept)
    return DataLoader(data, 32, sampler=DistributedSampler(data))
"""


def _kept(source: str) -> dict[str, str]:

    return {"data.py": _KEPT % source, "train.py": _TRAIN % "pass"}


_TOLD = "order = L.Fabric().broadcast(order)"


def _settings(seed: str, value: str = "null") -> dict[str, str]:
    data, train = SETTINGS
    return {"data.py": data, "train.py": train % seed, "conf.yaml": f"train:\n  devices: 4\n  seed: {value}\n"}


def _lists(draw: str, then: str = "pass", guard: str = "pass", default: str = "None") -> dict[str, str]:
    name = "L." + guard if guard.startswith("seed") else guard
    return {"train.py": LISTS % ("np.random." * (not draw.startswith("arange")) + draw, then, default, name)}


EXAMPLES = (
    bad("a split without a generator", _files(), "data.py:9 warning"),
    bad("drawn places, cut by a helper", _files("cut(items, np.random.permutation(len(items)))"), "data.py:14 warning"),
    bad("a data module of Lightning", {"train.py": _LIGHTNING % ("", "ddp")}, "train.py:9 warning"),
    bad("a draw for each item", _kept("random"), "data.py:17 warning"),
    bad("a generator without a seed", _kept("random.Random()"), "data.py:17 warning"),
    bad("numpy, in a loop", {**_kept("random"), "data.py": _LOOP}, "data.py:20 warning"),
    bad("a setting without a value", _settings('cfg["train"]["seed"]'), "data.py:5 warning"),
    bad("an option without a default", _lists("default_rng(seed).permutation(len(items))"), "train.py:9 warning"),
    bad("a shuffle in place", _lists("arange(len(items))", "random.Random(seed).shuffle(order)"), "train.py:10"),
    bad("seeded where a seed is given", _lists("permutation(len(items))", guard="seed_everything(seed)"), "train.py:9"),
    good("the setting has a value", _settings('cfg["train"]["seed"]', "42")),
    good("a number in its place", _settings('42 if cfg["train"]["seed"] is None else cfg["train"]["seed"]')),
    good("the option has a default", _lists("default_rng(seed).permutation(len(items))", default="1")),
    good("seeded in any case", _lists("permutation(len(items))", "pass", "pass\n    L.seed_everything(seed or 1)")),
    good("rank 0 tells the others", _lists("default_rng(seed).permutation(len(items))", _TOLD)),
    good("a generator with a seed", _kept("random.Random(7)")),
    good("a generator of its own", _files("random_split(items, [0.9, 0.1], torch.Generator().manual_seed(42))")),
    good("all ranks seed alike", _files(seed="torch.manual_seed(7)")),
    good("places in order", _files("cut(items, range(len(items)))")),
    good("a seeded generator of numpy", _files("cut(items, np.random.default_rng(7).permutation(len(items)))")),
    good("Lightning seeds", {"train.py": _LIGHTNING % ("L.seed_everything(7)\n    ", "ddp")}),
    good("drawn before the processes are forked", {"train.py": _LIGHTNING % ("", "ddp_notebook")}),
)  # fmt: skip
