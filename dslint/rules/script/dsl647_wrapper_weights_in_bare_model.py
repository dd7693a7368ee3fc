"""Weights of a wrapper are loaded into the bare model: every key has `module.` in front of it.

**What.** A training script saves `model.state_dict()` of a `DistributedDataParallel` (or `DataParallel`, or of what
`accelerator.prepare` gives on several processes), and the file is loaded into the bare model: on a resume before the
model is wrapped, at the end of the script for a test, or in another script that evaluates, generates or fine-tunes.

**Why it hurts.** The keys of the wrapper begin with `module.`, those of the model do not. `load_state_dict` raises
with missing keys; with `strict=False` it loads nothing and says nothing: the run continues with fresh weights.

**Fix.** Save `model.module.state_dict()`, load after wrapping, or take the prefix off:
`{k.removeprefix("module."): v for k, v in state.items()}`.

**When it stays quiet.** A project that has `module.` in a text, or saves the weights of the bare model, too; models of
another class; another name of the file, or another key in it; a script that trains and whose file nobody can name;
wrappers that may be anything, such as those of accelerate where nothing says how many processes there are.

**Evidence.** torch 2.13: `DistributedDataParallel(m).state_dict()` has the keys `module.weight`; `m.load_state_dict`
of it raises, and with `strict=False` returns all keys as missing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.otherscripts import other_runs, texts_of_others
from dslint.rules.ranks.savedweights import (
    Files,
    Weights,
    is_changed,
    is_model_wrapper,
    is_same_file,
    keys_read,
    loading_calls,
)
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddps import knows_prefix, unwraps

META = RuleMeta(
    code="DSL647",
    name="wrapper-weights-in-bare-model",
    kind="script",
    severity=Severity.WARNING,
    summary="a checkpoint of the DDP wrapper is loaded into the bare model, whose keys have no `module.`",
    markers=(r"DataParallel|DDP|\.prepare\(", r"state_dict\(\)"),
    references=(
        "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
        "https://github.com/NVIDIA/DeepLearningExamples/pull/693",
    ),
    depends_on_run=True,
    no_experiment="the names of the keys can be compared without ranks",
)
_OF_OPTIMIZER = ("torch.optim.",)
_LOADS = re.compile(r"\b(?:load|restore|resume)\w*\(")
_SAVES = re.compile(r"\btorch\.save\(|\bsave_(?:pretrained|model|checkpoint)\(")
_NO_MODEL = re.compile(r"(?i)scaler|optim|\bopt\b|sched|sampler|\bloader")
_PREFIX = "the weights of the wrapper are saved"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each load of a file with the weights of a wrapper into a model without one."""
    if knows_prefix(run) or unwraps(run):
        return
    states = [found.event for found in run.happenings("state-dict") if _is_model(run, found.event)]
    if not states or not all(_is_of_wrapper(run, event.receiver) for event in states):
        return
    files = Files(run)
    told = set()
    for event in _resumed(run, files, states):
        told.add(event.node)
        yield _finding(run, event, states[0])
    saved = list(files.saved(states))
    for one in files.loaded():
        fits = next((w for w in saved if is_same_file(w.name, one.name) and _fits(w, one)), None)
        if fits is not None and one.event.node not in told and _is_bare(run, files, one):
            told.add(one.event.node)
            yield _finding(run, one.event, fits.event)
    if saved:
        yield from _elsewhere(run, saved)


def _resumed(run: RunQuery, files: Files, states: list[Event]) -> Iterator[Event]:
    """Yield the loads into a bare model of checkpoints of this script.

    They hold the state of an optimizer, too, or are asked for the epoch or step that the script saves.
    """
    loads = [found.event for found in run.happenings("loads-state-dict")]
    of_optimizer = [event for event in loads if event.api.startswith(_OF_OPTIMIZER)]
    resumed = {call for event in of_optimizer for call in loading_calls(files.pieces(event))}
    kept = files.checkpoints(states)
    for event in (found.event for found in run.happenings("loads") if kept):
        read = keys_read(event.module, event.node)
        if isinstance(event.node, ast.Call) and any(weights & read and beside & read for weights, beside in kept):
            resumed.add(event.node)
    for event in loads:
        if event in of_optimizer or event.may or not _has_class(run, event.receiver) or _is_no_model(event):
            continue
        pieces = files.pieces(event)
        if resumed & loading_calls(pieces) and not is_changed(pieces):
            yield event


def _is_no_model(event: Event) -> bool:
    """Return whether the name of what loads a state says that it has no weights."""
    loads = event.node.func if isinstance(event.node, ast.Call) else None
    return isinstance(loads, ast.Attribute) and _NO_MODEL.search(ast.unparse(loads.value)) is not None


def _elsewhere(run: RunQuery, saved: list[Weights]) -> Iterator[Finding]:
    """Fire on weights of a wrapper that another script of the project loads into the bare model."""
    has_others = any(_SAVES.search(text) for text in texts_of_others(run).values())
    found: dict[Event, list[tuple[RunQuery, Weights]]] = {}
    for other in other_runs(run, _LOADS):
        if knows_prefix(other) or unwraps(other):
            continue
        is_sure = not has_others and not other.has("backward", "trainer-train", "wraps-model", "prepares")
        files = Files(other)
        for one in files.loaded():
            for weights in saved:
                same = is_same_file(weights.name, one.name)
                if (same or (same is None and is_sure)) and _fits(weights, one) and _is_bare(other, files, one):
                    found.setdefault(weights.event, []).append((other, one))
    for event, loads in found.items():
        places = {
            one.event.node: other.location(one.event.module, one.event.node, "loaded here") for other, one in loads
        }
        yield run.finding(
            META,
            event.module,
            event.node,
            "These are the wrapper's weights, with `module.` before each name: another script loads them without",
            hint="Save `model.module.state_dict()`",
            related=tuple(places.values())[:3],
        )


def _fits(saved: Weights, loaded: Weights) -> bool:
    """Return whether both are of the same kind of model, and under a key that is there."""
    is_named = saved.name == loaded.name and bool(saved.keys) and not saved.kinds  # a model that an option names
    if not (saved.kinds & loaded.kinds or is_named) or loaded.is_changed:
        return False
    return bool(saved.keys & loaded.keys) if saved.keys else not loaded.keys


def _is_model(run: RunQuery, event: Event) -> bool:
    is_wrapped = any(is_model_wrapper(run, atom) for atom in instances(event.receiver))
    return event.api.startswith("torch.nn.") or is_wrapped


def _is_of_wrapper(run: RunQuery, value: Value | None) -> bool:
    found = instances(value)
    return bool(found) and all(_gives_prefix(run, atom) for atom in found)


def _gives_prefix(run: RunQuery, atom: Instance) -> bool:
    """Return whether the names of a wrapper's weights certainly begin with `module.`."""
    libraries = run.machine.libraries
    if not isinstance(atom.cls, str):
        return False
    if libraries.is_class(atom.cls, "prepared-model"):
        return run.context.world_size.get_or(0) > 1 and not run.is_fsdp and run.stage is None
    return libraries.is_class(atom.cls, "ddp") or atom.cls == "torch.nn.DataParallel"


def _is_bare(run: RunQuery, files: Files, weights: Weights) -> bool:
    """Return whether a model certainly has no wrapper around it."""
    found = instances(weights.event.receiver)
    is_plain = bool(found) and not weights.event.may and not any(is_model_wrapper(run, atom) for atom in found)
    return is_plain and len(files.kinds(weights.event.receiver)) == 1


def _has_class(run: RunQuery, value: Value | None) -> bool:
    """Return whether a value certainly is a model of a known class, without a wrapper around it."""
    found = instances(value)
    if value is None or not found or len(found) != len(value.atoms):
        return False
    return all(bool(atom.cls) and not is_model_wrapper(run, atom) for atom in found)


def _finding(run: RunQuery, event: Event, saved: Event) -> Finding:
    strict = event.arguments.get("strict")
    is_silent = strict is not None and strict.constants == (False,)
    what = "the bare model silently loads none" if is_silent else "loading into the bare model raises"
    return run.finding(
        META,
        event.module,
        event.node,
        f"the file holds the DDP wrapper's weights, whose keys begin with `module.`: {what}",
        hint="Save `model.module.state_dict()`",
        related=(run.location(saved.module, saved.node, _PREFIX),),
    )


_SCRIPT = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(path, loader, rank):
    dist.init_process_group("nccl")
    model = nn.Linear(8, 8).cuda(rank)
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(%s)
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.load_state_dict(%s["optimizer"])
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
    if rank == 0:
        torch.save({"model": model%s.state_dict(), "optimizer": optimizer.state_dict()}, path)
"""
_STEPS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(path, loader, rank):
    dist.init_process_group("nccl")
    model = nn.Linear(8, 8).cuda(rank)
    state = torch.load(path, map_location="cpu")
    print("continues after", state["epoch"])
    missing, others = model.load_state_dict(state["state_dict"] if "state_dict" in state else state, strict=False)
    assert not others, missing
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch, x in enumerate(loader):
        model(x).sum().backward()
        optimizer.step()
        if rank == 0:
            checkpoint = {"epoch": epoch, "state_dict": model%s.state_dict()}
            torch.save(checkpoint, f"out/{epoch}.ckpt")
"""
_SILENT = 'state["model"], strict=False'
_NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, 2)

    def forward(self, x):
        return self.fc(x)


def build(name):
    return Net({"small": 8, "large": 64}[name])
"""
_TRAINER = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, net, folder, rank):
        self.net = DDP(net.cuda(rank), device_ids=[rank])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.folder, self.rank = folder, rank

    def save(self, epoch):
        state = {"epoch": epoch, "net": self.net%s.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, os.path.join(self.folder, f"net_{epoch}.pt"))

    def fit(self, loader):
        for epoch in range(10):
            for x in loader:
                self.net(x).sum().backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            if self.rank == 0:
                self.save(epoch)
"""
_MAIN = """\
import argparse
import os

import torch
import torch.distributed as dist

from net import build
from trainer import Trainer

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default="runs")
args = parser.parse_args()
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
Trainer(build("small"), args.folder, rank).fit(torch.load(f"rows_{dist.get_rank()}.pt"))
"""
_EVALUATE = """\
import argparse

import torch

from net import build


def restore(path):
    net = build("small")
    net.load_state_dict(%s, strict=False)
    return net.eval()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint"%s)
    print(restore(parser.parse_args().checkpoint)(torch.ones(8)))
"""
_READ = 'torch.load(path, map_location="cpu")["%s"]'
_CUT = '{k[7:]: v for k, v in torch.load(path)["net"].items()}'
_AT_ONCE = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from net import Net


def test(path):
    net = %s
    net.load_state_dict(torch.load(path))
    print(net(torch.ones(8)))


def worker(rank, world):
    dist.init_process_group("gloo", init_method="file:///tmp/store", rank=rank, world_size=world)
    net = DDP(Net())
    net(torch.ones(8)).sum().backward()
    if rank == 0:
        torch.save(net.state_dict(), "best.pt")
    dist.barrier()


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
    test("best.pt")
"""


def _two(saved: str, loaded: str, more: str = "") -> dict[str, str]:
    return {
        "train.py": _MAIN,
        "trainer.py": _TRAINER % saved,
        "net.py": _NET,
        "evaluate.py": _EVALUATE % (loaded, more),
    }


EXAMPLES = (
    bad("silent", {"train.py": _SCRIPT % (_SILENT, "state", "")}, at="train.py:11 warning"),
    bad("loud", {"train.py": _SCRIPT % ('state["model"]', "state", "")}, at="train.py:11 warning"),
    bad("in another script", _two("", _READ % "net"), at="trainer.py:15 warning"),
    bad("in another script, by name", _two("", _READ % "net", ', default="runs/net_9.pt"'), at="trainer.py:15"),
    bad("at the end of the script", {"main.py": _AT_ONCE % "Net()", "net.py": _NET}, at="main.py:11 warning"),
    bad("a checkpoint of its own, by what it asks of it", {"train.py": _STEPS % ""}, at="train.py:12 warning"),
    good("weights of somebody else", {"train.py": (_STEPS % "").replace('state["epoch"]', "path")}),
    good("a checkpoint without the wrapper", {"train.py": _STEPS % ".module"}),
    good("the model is saved", {"train.py": _SCRIPT % (_SILENT, "state", ".module")}),
    good(
        "the prefix is taken off",
        {
            "train.py": _SCRIPT
            % ('{k.removeprefix("module."): v for k, v in state["model"].items()}, strict=False', "state", "")
        },
    ),
    good("another file for the weights", {"train.py": _SCRIPT % (_SILENT, "torch.load('optimizer.pt')", "")}),
    good("another script, which gets the model", _two(".module", _READ % "net")),
    good("another script, which takes the prefix off", _two("", _CUT)),
    good("another script, which reads another key", _two("", _READ % "ema")),
    good("another script, which reads another file", _two("", _READ % "net", ', default="best.pt"')),
    good("wrapped for the load", {"main.py": _AT_ONCE % "torch.nn.DataParallel(Net())", "net.py": _NET}),
)
