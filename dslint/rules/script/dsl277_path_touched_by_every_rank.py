"""Every rank makes, removes, moves or writes the same file or folder.

**What.** A script that runs as several processes makes a folder without `exist_ok`, removes or moves a file or folder,
writes a file, or downloads and unpacks a data set without a lock, under a path that is the same on all ranks, and
nothing keeps ranks from coming there together.

**Why it hurts.** The ranks race. Of two that make a folder one gets `FileExistsError`, also where both have looked
before whether it is there. Of two that remove or move something one gets `FileNotFoundError`. That rank ends, and the
others wait for it. Of two that write a file the last one wins: the results of the others are lost, and a file that two
write at the same time may hold parts of both. A rank that finds an archive of which another has written a part reads
it as broken: `Dataset not found or corrupted`, at the first run on a machine.

**Fix.** Do it on rank 0 only, with a barrier before other ranks use the path; pass `exist_ok=True` for a folder; or put
the rank into the name.

**When it stays quiet.** Only some ranks come there, or a test in the way names a rank or cannot be read; the path
differs by rank or its origin is not certain; a lock or `main_process_first` is around, or other
ranks wait at a barrier; the error is caught, or
`exist_ok`, `missing_ok`, `ignore_errors` rule it out; files that are appended to; tokenizers and
processors; downloads of libraries that take a lock; a data set that some process has fetched before;
calls of libraries that write on one rank themselves; scripts of which nothing says that they run as several
processes, and processes that are started later.

**Evidence.** Two gloo ranks: the second `os.makedirs`, `shutil.rmtree` and `shutil.move` of the same path raise, also
after a test; a file that both write holds the results of one rank; an archive that one is still writing
is refused by the other. With paths of their own nothing happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event
from dslint.python.values import Const, Instance, PerRank, Value
from dslint.python.varies import DIVERGENT, HOST, LOST, UNMODELLED, UNSURE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.everyrank import Arrival, arrivals, row_of, written_as
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL277",
    name="path-touched-by-every-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank makes, removes or writes the same file or folder: one of them fails, or results are lost",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine",),
    references=(
        "https://docs.python.org/3/library/os.html#os.makedirs",
        "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
    ),
    depends_on_run=True,
)
_MESSAGES = {
    "folder": "Every rank makes this folder: the second one gets `FileExistsError`, and the others wait for it",
    "tested folder": "Every rank makes this folder if it is missing: of two that look at once one fails",
    "remove": "Every rank removes the same path: the second one gets `FileNotFoundError`",
    "move": "Every rank moves the same path: the second one gets `FileNotFoundError`",
    "download": "Every rank downloads this data set into one folder: a rank may read what another has half written",
    "write": "Every rank writes this file: the last one wins, and what two ranks write at the same time is torn",
}
_HINTS = {
    "folder": "Pass `exist_ok=True`",
    "download": "Download on one rank of each machine, let the others wait at a barrier, then open it on all of them",
    "write": "Write it on rank 0 only, or put the rank into its name",
    "": "Do it on rank 0 only, and let the others wait at a barrier",
}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call by which every rank changes the same path."""
    if run.context.is_one_process:
        return
    reached = list(arrivals(run, "makes-folder", "removes", "moves-file", "saves", "opens", "unpacks"))
    fetched = _fetched_before(run, reached)
    for found in reached:
        event, row = found.event, row_of(run, found.event)
        does = _does(found, row)
        if (
            does is None
            or (does == "download" and event.api in fetched)
            or not _is_shared(event, str(row.get("path", "")))
        ):
            continue
        calls = [node for node in found.around if isinstance(node, Call)]
        tests = any(isinstance(node, Alt) and node.varies & HOST for node in found.around)
        yield run.finding(
            META,
            event.module,
            event.node,
            _MESSAGES["tested folder" if does == "folder" and tests else does],
            hint=_HINTS.get(does, _HINTS[""]),
            related=(
                *(run.location(call.module, call.node, "called from here") for call in calls[:-4:-1]),
                run.location(found.start.module, found.start.node, "here the run has several processes"),
            ),
            varies=event.snapshot[str(row.get("path", ""))][0],
            same=(_path(event, str(row.get("path", ""))),),
            facts={"does": does, "tests": tests},
        )


def _fetched_before(run: RunQuery, reached: list[Arrival]) -> frozenset[str]:
    """Return the data sets that some processes fetch elsewhere, so that the others find them."""
    every = {id(found.event.node) for found in reached}
    others = (h.event for h in run.happenings("unpacks") if id(h.event.node) not in every)
    return frozenset(event.api for event in others if not _is(event, "download", False))


def _does(found: Arrival, row: Mapping[str, Any]) -> str | None:
    """Return what a call does to its path; `None` where nothing can go wrong."""
    event = found.event
    if "makes-folder" in event.tags:
        is_open = "exist_ok" in row and not _is(event, str(row["exist_ok"]), False)
        return None if is_open or row.get("always_exist_ok") or found.is_tried else "folder"
    if event.tags & {"removes", "moves-file"}:
        is_open = not _is(event, "ignore_errors", False) or not _is(event, "missing_ok", False)
        return None if is_open or found.is_tried else "remove" if "removes" in event.tags else "move"
    if "unpacks" in event.tags:
        asked = event.arguments.get("download")
        return "download" if asked is not None and asked.constants == (True,) and not found.is_tried else None
    if "opens" in event.tags:
        mode = event.arguments.get(str(row.get("mode", "")))
        modes = mode.constants if mode is not None else None
        return "write" if modes and all(isinstance(m, str) and m[:1] in ("w", "x") for m in modes) else None
    # Libraries that take a function which writes, or are told which rank does, guard by themselves; tokenizers and
    # configurations are small and the same on all ranks.
    is_small = event.api.endswith(".save_pretrained") and "main" not in row
    is_guarded = "downloads" in event.tags or "save_function" in event.arguments or event.open or is_small
    mode = event.arguments.get(str(row.get("mode", "")))
    is_added = bool(row.get("appends")) if mode is None else mode.constants != ("w",)
    return None if is_guarded or is_added or not _is(event, str(row.get("main", "")), True) else "write"


def _is(event: Event, name: str, default: bool) -> bool:
    """The argument is not given, or certainly has its default."""
    return name not in event.arguments or event.arguments[name].constants == (default,)


# Names by which scripts tell their processes apart, whatever the reader knows of their values.
_OWN = re.compile(r"(?i)rank|shard|worker|pid|uuid|mkdtemp|tempfile|tmp_path|tmpdir|proc(?:ess)?_?(?:id|index|num)")


def _path(event: Event, parameter: str) -> Value | None:
    return event.receiver if parameter == "self" else event.arguments.get(parameter)


def _is_shared(event: Event, parameter: str) -> bool:
    """The path is a text or a `Path`, and certainly the same on all ranks."""
    path = _path(event, parameter)
    if path is None or event.snapshot[parameter][0] & (DIVERGENT | LOST | UNSURE & ~UNMODELLED):
        return False
    if any(_OWN.search(text) for text in written_as(event, event.nodes.get(parameter))):
        return False
    return all(
        atom.cls in ("pathlib.Path", "builtins.str", "")
        if isinstance(atom, Instance)
        else not isinstance(atom, PerRank) and (not isinstance(atom, Const) or isinstance(atom.value, str))
        for atom in path.atoms
    )


_HEAD = """\
import os
import shutil

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


"""
_MAIN = (
    _HEAD
    + """\
def main(args, net, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = DDP(net.cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
%s
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
%s
    dist.destroy_process_group()
"""
)
_TESTED = "    if not os.path.exists(args.output):\n        os.makedirs(args.output)\n"
_RESULTS = (
    "    with open(os.path.join(args.output, 'results.json'), 'w') as file:\n        file.write(str(len(loader)))\n"
)
_SAVE = "    torch.save(model.module.state_dict(), args.output + '/last.pt')\n"
_FILES = """\
import os
import shutil


class Folder:
    def __init__(self, path):
        self.path = path

    def fresh(self):
        if os.path.isdir(self.path):
            shutil.rmtree(self.path)
        os.makedirs(self.path)
"""
_RUN = """\
import argparse

from accelerate import Accelerator

from files import Folder

parser = argparse.ArgumentParser()
parser.add_argument("--output", default="out")
args = parser.parse_args()
accelerator = Accelerator()
%sFolder(args.output).fresh()
"""
_SPAWN = """\
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world, folder):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=rank, world_size=world)
    with open(f"{folder}/%s", "w") as file:
        file.write("done")


if __name__ == "__main__":
    with open("out/command.txt", "w") as file:
        file.write("start")
    mp.spawn(work, args=(4, "out"), nprocs=4)
"""

_WRITER = """\
import lightning as L
import pandas as pd
from lightning.pytorch.callbacks import BasePredictionWriter

from model import Model


class Writer(BasePredictionWriter):
    def __init__(self, path):
        super().__init__(write_interval="epoch")
        self.path = path

%s    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
        pd.DataFrame(predictions).to_csv(self.path)


trainer = L.Trainer(devices=4, strategy="%s", callbacks=[Writer("out.csv")])
trainer.predict(Model(), return_predictions=False)
"""

_DATA = """\
from torchvision import datasets


def cifar(root, train%s):
    return datasets.CIFAR10(root, train=train, download=%s)
"""
_READS = """\
import os

import torch.distributed as dist

from data import cifar

%sdist.init_process_group("nccl")
%scifar("/tmp/cifar10", True%s)
"""

_DECORATED = """\
import functools

import torch
import torch.distributed as dist


def main_process(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)

    return wrapper


class Runner:
    def __init__(self, model, folder):
        dist.init_process_group("gloo")
        self.model, self.folder = torch.nn.parallel.DistributedDataParallel(model), folder

    @main_process
    def save(self, epoch):
        torch.save(self.model.module.state_dict(), f"{self.folder}/checkpoint_{epoch}.pt")
"""

EXAMPLES = (
    good("a decorator of the project keeps the other ranks away", {"runner.py": _DECORATED}),
    bad("a data set that every rank downloads", {
        "data.py": _DATA % ("", "True"), "train.py": _READS % ("", "", "")}, "data.py:5"),
    bad("a flag that the call gives", {
        "data.py": _DATA % (", fetch", "fetch"), "train.py": _READS % ("", "", ", fetch=True")}, "data.py:5"),
    good("the data set must be there", {
        "data.py": _DATA % ("", "False"), "train.py": _READS % ("", "", "")}),
    good("the default is not to download", {
        "data.py": (_DATA % ("", "")).replace(", download=", ""), "train.py": _READS % ("", "", "")}),
    good("the first rank of each machine downloads", {
        "data.py": _DATA % (", fetch", "fetch"), "train.py": _READS % ("", "", ', os.environ["LOCAL_RANK"] == "0"')}),
    good("one rank has fetched it before", {"data.py": _DATA % ("", "True"), "train.py": _READS % (
        "from torchvision.datasets import CIFAR10\n\n",
        "if dist.get_rank() == 0:\n    CIFAR10('/tmp/cifar10', download=True)\ndist.barrier()\n", "")}),
    bad("a writer of Lightning, which runs on every rank", {"predict.py": _WRITER % ("", "ddp")}, "predict.py:14"),
    good("the writer runs on rank 0 only", {
        "predict.py": (_WRITER % ("    @rank_zero_only\n", "ddp")).replace(
            "import pandas", "from lightning.pytorch.utilities import rank_zero_only\nimport pandas")}),
    good("one process drives all devices", {"predict.py": _WRITER % ("", "dp")}),
    bad("a folder that every rank looks for", {"train.py": _MAIN % (_TESTED, "")}, "train.py:15"),
    bad(
        "results that every rank writes",
        {"train.py": _MAIN % ("", _RESULTS + _SAVE)},
        ("train.py:19", "train.py:21"),
    ),
    bad(
        "an old folder is moved away and removed",
        {"train.py": _MAIN % ("    shutil.move(args.old, args.output)\n    os.remove(args.list)\n", "")},
        ("train.py:14", "train.py:15"),
    ),
    bad(
        "a helper in another file",
        {"files.py": _FILES, "train.py": _RUN % ""},
        ("files.py:11", "files.py:12"),
    ),
    bad("processes that the script starts", {"train.py": _SPAWN % "log.txt"}, "train.py:7"),
    good("the rank is in the name", {"train.py": _SPAWN % "log{rank}.txt"}),
    good("rank 0 alone", {
        "files.py": _FILES, "train.py": (_RUN % "if accelerator.is_main_process:\n    "),
        "plain.py": _MAIN % ("    if dist.get_rank() == 0:\n        os.makedirs(args.output)\n", ""),
    }),
    good("the main process goes first", {
        "files.py": _FILES, "train.py": _RUN % "with accelerator.main_process_first():\n    "}),
    good("the others wait until rank 0 has made it", {"train.py": _MAIN % (
        "    if dist.get_rank() != 0:\n        dist.barrier()\n" + _TESTED
        + "    if dist.get_rank() == 0:\n        dist.barrier()\n", "")}),
    good("a folder that may be there", {"train.py": _MAIN % ("    os.makedirs(args.output, exist_ok=True)\n", "")}),
    good("the error is caught", {
        "train.py": _MAIN % (
            "    try:\n        os.makedirs(args.output)\n    except FileExistsError:\n        print('there')\n", "")}),
    good("a test that knows who writes", {"train.py": _MAIN % ("", "    if args.is_main:\n    " + _SAVE)}),
    good("a lock", {"train.py": (_MAIN % (
        "    with FileLock(args.output + '.lock'):\n        shutil.rmtree(args.output)\n", "")).replace(
        "import torch\n", "import torch\nfrom filelock import FileLock\n", 1)}),
    good("nothing starts other processes", {
        "files.py": _FILES, "train.py": "from files import Folder\n\nFolder('out').fresh()\n"}),
    good("one process", {"train.py": _MAIN % (_TESTED, "")}, world_size=1),
)  # fmt: skip
