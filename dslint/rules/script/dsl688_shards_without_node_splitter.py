"""A `WebDataset` of several processes has no `nodesplitter`: the library refuses to read it.

**What.** `wds.WebDataset(urls)` is made in a job of several processes, without `nodesplitter=`. From release 0.2.96 on
`resampled=True` does not help.

**Why it hurts.** The default is `single_node_only`: it raises `ValueError: you need to add an explicit nodesplitter to
your input pipeline for multi-node training` in the first worker that is asked for an item. In spite of its words it
counts processes, not machines. With one GPU the script works.

**Fix.** `nodesplitter=wds.split_by_node` where there are at least as many shards as processes. With `resampled=True`
each process draws shards for itself, and any splitter will do.

**When it stays quiet.** A splitter, also a function of the project; arguments that nobody knows; a list of shards that
is itself a data set, or a YAML file; `resampled=True` where nobody states a release from 0.2.96 on; webdataset 0.1,
which divides the shards by itself; no sign of several processes; one process.

**Evidence.** `WebDataset` of the releases 0.2.4, 0.2.18, 0.2.48, 0.2.86, 0.2.100, 0.2.111 and 1.0.2 under
`RANK=0 WORLD_SIZE=2`: each raises at the first item, and reads with `split_by_node`. With `resampled=True` 0.2.18,
0.2.48 and 0.2.86 read, and 0.2.96, 0.2.100, 0.2.111 and 1.0.2 raise: PyPI has none between. That 0.2.4 reads then, and
that 0.1.62 divides by node, is read from their sources.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.versions.resolve import covers
from dslint.python.events import Event
from dslint.python.values import Api, Const, Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import has_several, is_one_process, trainers

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
_SPLITS_BY_ITSELF = "<0.2"
_REFUSES_RESAMPLED = ">=0.2.96"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each such data set in a script that certainly trains in several processes."""
    several = _several(run)
    if is_one_process(run) or several is None or _is_release(run, _SPLITS_BY_ITSELF):
        return
    seen: set[int] = set()
    for event in (found.event for found in run.happenings("pipes")):
        if event.api != _MADE or event.may or id(event.node) in seen or not _has_default(run, event):
            continue
        seen.add(id(event.node))
        yield _finding(run, event, several)


def _finding(run: RunQuery, event: Event, several: Event) -> Finding:
    stated = run.context.libraries.get("webdataset")
    draws = "resampled" in event.arguments and event.arguments["resampled"].constants == (True,)
    origin = (stated.origin,) if draws and stated is not None and stated.origin is not None else ()
    refuses = "as of 0.2.96 resampled shards need one" if draws else "several processes raise a `ValueError`"
    return run.finding(
        META,
        event.module,
        event.node,
        f"this `WebDataset` has no `nodesplitter`: {refuses}",
        hint="Pass `nodesplitter=wds.split_by_node`",
        related=(*origin, run.location(several.module, several.node, "several processes start here")),
    )


def _is_release(run: RunQuery, specifier: str) -> bool:
    """Return whether the project certainly installs one of these releases."""
    stated = run.context.libraries.get("webdataset")
    return stated is not None and stated.is_known and covers(stated, specifier, "webdataset") == "yes"


def _several(run: RunQuery) -> Event | None:
    """Return what says that there are several processes."""
    made = trainers(run)
    if made:
        return made[0] if all(map(has_several, made)) else None
    return next((found.event for found in run.happenings("starts-group")), None)


def _has_default(run: RunQuery, event: Event) -> bool:
    """Return whether the library certainly puts its own splitter behind the list of shards."""
    given = event.arguments
    if event.open or "urls" not in given or not _is_single_node_only(given.get("nodesplitter")):
        return False
    draws = given["resampled"].constants if "resampled" in given else (False,)
    if draws != (False,) and not (draws == (True,) and _is_release(run, _REFUSES_RESAMPLED)):
        return False
    return _are_shards(given["urls"])


def _is_single_node_only(splitter: Value | None) -> bool:
    """Return whether there is no splitter but that of the library, which a call may also name."""
    atom = splitter.single if splitter is not None else None
    return splitter is None or (isinstance(atom, Api) and atom.path.endswith(".single_node_only"))


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
_IMPORTS = "import torch.distributed as dist\n"
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


_CHOSEN = ", nodesplitter=wds.split_by_node if dist.get_world_size() > 1 else wds.single_node_only"

EXAMPLES = (
    bad("In a helper of another file", _plain(""), "shards.py:5 warning"),
    bad("A data module of Lightning", {"train.py": _MODULE % ("", 4)}, "train.py:12 warning"),
    bad("accelerate, and a list of files", {"train.py": _ACCELERATE % ", resampled=False"}, "train.py:8 warning"),
    bad("The default, by its name", _plain(", nodesplitter=wds.single_node_only"), "shards.py:5 warning"),
    bad(
        "Each process draws shards, and the release wants a splitter for them, too",
        {**_plain(", resampled=True"), "requirements.txt": "webdataset==0.2.100\n"},
        "shards.py:5 warning",
    ),
    good(
        "Each process draws shards, with an older release",
        {**_plain(", resampled=True"), "requirements.txt": "webdataset==0.2.86\n"},
    ),
    good("A release that divides the shards by itself", {**_plain(""), "requirements.txt": "webdataset==0.1.103\n"}),
    good("Shards are distributed", _plain(", nodesplitter=wds.split_by_node")),
    good("Dealt out where there are several", {"train.py": _PLAIN, "shards.py": _IMPORTS + _READ % _CHOSEN}),
    good("Each process draws shards, and nobody states a release", {"train.py": _MODULE % (", resampled=True", 4)}),
    good("Nobody knows the arguments", {"train.py": _ACCELERATE % ", **args.options"}),
    good("One device", {"train.py": _MODULE % ("", 1)}),
    good("One process", _plain(""), world_size=1),
)
