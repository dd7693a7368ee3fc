"""A `WebDataset` of several processes has no `nodesplitter`: the library refuses to read it.

**What.** `wds.WebDataset(urls)` is made in a job of several processes, without `nodesplitter=` and without
`resampled=True`.

**Why it hurts.** The default is `single_node_only`: it raises `ValueError: you need to add an explicit nodesplitter to
your input pipeline for multi-node training` in the first worker that is asked for an item. In spite of its words it
counts processes, not machines. With one GPU the script works.

**Fix.** `nodesplitter=wds.split_by_node` where there are at least as many shards as processes, or `resampled=True`,
where each process draws shards for itself and the epoch has a length of its own.

**When it stays quiet.** A splitter, also a function of the project; arguments that nobody knows; a list of shards that
is itself a data set, or a YAML file; no sign of several processes; one process.

**Evidence.** `single_node_only` in webdataset/shardlists.py raises where the number of processes is above one, and
`WebDataset.__init__` in webdataset/compat.py puts it behind the list of shards; both are so from 0.2 on.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Const, Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.lightnings import has_several, trainers
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL688",
    name="shards-without-node-splitter",
    kind="script",
    severity=Severity.WARNING,
    summary="a `WebDataset` without `nodesplitter` in several processes: the first batch raises `ValueError`",
    markers=(r"webdataset", r"WebDataset\(", r"lightning|accelerat|distributed|deepspeed"),
    references=(
        "https://github.com/Lightning-AI/pytorch-lightning/issues/20149",
        "https://github.com/webdataset/webdataset/blob/main/webdataset/shardlists.py",
    ),
    depends_on_run=True,
    no_experiment="webdataset is none of the libraries that the probe installs",
)
_MADE = "webdataset.WebDataset"
_LISTS = ("builtins.list", "builtins.str", "builtins.tuple")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each such data set in a script that certainly trains in several processes."""
    several = _several(run)
    if run.context.is_one_process or several is None:
        return
    seen: set[int] = set()
    for event in (found.event for found in run.happenings("pipes")):
        if event.api != _MADE or event.may or id(event.node) in seen or not _has_default(event):
            continue
        seen.add(id(event.node))
        yield run.finding(
            META,
            event.module,
            event.node,
            "this `WebDataset` has no `nodesplitter`: with more than one process the first batch raises `ValueError`",
            hint="Pass `nodesplitter=wds.split_by_node`, or `resampled=True`",
            related=(run.location(several.module, several.node, "several processes start here"),),
        )


def _several(run: RunQuery) -> Event | None:
    """Return what says that there are several processes."""
    made = trainers(run)
    if made:
        return made[0] if all(map(has_several, made)) else None
    return next((found.event for found in run.happenings("starts-group")), None)


def _has_default(event: Event) -> bool:
    """Return whether the library certainly puts its own splitter behind the list of shards."""
    given = event.arguments
    if event.open or "nodesplitter" in given or "urls" not in given:
        return False
    if "resampled" in given and given["resampled"].constants != (False,):
        return False
    return _are_shards(given["urls"])


def _are_shards(urls: Value) -> bool:
    """Return whether the shards are a list or pattern, and no data set and no YAML file, which are read otherwise."""
    for atom in urls.atoms:
        if isinstance(atom, Const) and (not isinstance(atom.value, str) or atom.value.endswith((".yaml", ".yml"))):
            return False
        if isinstance(atom, Instance) and atom.cls and atom.cls not in _LISTS:
            return False
    return True


_PLAIN = """\
import os

import torch
import torch.distributed as dist
import webdataset as wds
from torch.nn.parallel import DistributedDataParallel

from shards import read


def main(model, optimizer):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = DistributedDataParallel(model.cuda())
    loader = wds.WebLoader(read("train-{000..255}.tar"), batch_size=None, num_workers=4)
    for images, labels in loader:
        torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main(torch.nn.Linear(8, 2), None)
"""
_READ = """\
import webdataset as wds


def read(urls):
    data = wds.WebDataset(urls%s)
    return data.shuffle(1000).decode("torchrgb").to_tuple("jpg", "cls").batched(32).with_epoch(1000)
"""
_MODULE = """\
import lightning as L
import webdataset as wds


class Shards(L.LightningDataModule):
    def __init__(self, urls, batch_size=32):
        super().__init__()
        self.urls, self.batch_size = urls, batch_size

    def train_dataloader(self):
        data = (
            wds.WebDataset(self.urls, shardshuffle=100%s)
            .decode("pil")
            .to_tuple("jpg", "cls")
            .batched(self.batch_size)
        )
        return wds.WebLoader(data, batch_size=None, num_workers=4)


def main(module, urls):
    trainer = L.Trainer(accelerator="gpu", devices=%s)
    trainer.fit(module, datamodule=Shards(urls))
"""
_ACCELERATE = """\
import webdataset as wds
from accelerate import Accelerator


def main(args, model, optimizer):
    accelerator = Accelerator()
    urls = [f"{args.root}/{i:05d}.tar" for i in range(args.shards)]
    loader = wds.WebLoader(wds.WebDataset(urls%s).decode().to_tuple("x", "y"), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        accelerator.backward((model(x) - y).square().mean())
        optimizer.step()
"""


def _plain(more: str) -> dict[str, str]:
    return {"train.py": _PLAIN, "shards.py": _READ % more}


EXAMPLES = (
    bad("In a helper of another file", _plain(""), "shards.py:5 warning"),
    bad("A data module of Lightning", {"train.py": _MODULE % ("", 4)}, "train.py:12 warning"),
    bad("accelerate, and a list of files", {"train.py": _ACCELERATE % ", resampled=False"}, "train.py:8 warning"),
    good("Shards are dealt out", _plain(", nodesplitter=wds.split_by_node")),
    good("Each process draws shards", {"train.py": _MODULE % (", resampled=True", 4)}),
    good("Nobody knows the arguments", {"train.py": _ACCELERATE % ", **args.options"}),
    good("One device", {"train.py": _MODULE % ("", 1)}),
    good("One process", _plain(""), world_size=1),
)
