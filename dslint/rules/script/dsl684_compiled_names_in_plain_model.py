"""Weights of a compiled model are loaded into one that is not compiled: every name has `_orig_mod.` in front of it.

**What.** A training script replaces its model by `torch.compile(model)`, saves `model.state_dict()` (or
`model.module.state_dict()` of the DDP around it), and the file is loaded into a model that nothing has compiled: on a
resume before the model is compiled, or in another script that evaluates or generates.

**Why it hurts.** `torch.compile(model)` is a module that holds the model as `_orig_mod`, and so are the names of its
weights. `load_state_dict` raises with missing keys; with `strict=False` it loads nothing and says nothing.

**Fix.** Save `model._orig_mod.state_dict()`, compile in place (`model.compile()`), or take the prefix off:
`{k.replace("_orig_mod.", ""): v for k, v in state.items()}`.

**When it stays quiet.** A project that speaks of `_orig_mod` anywhere, or keeps another name for the model before it is
compiled; models of another class; another name of the file, or another key in it; a model that is compiled before it
is loaded.

**Evidence.** torch 2.13: `torch.compile(nn.Linear(2, 2)).state_dict()` has the keys `_orig_mod.weight` and
`_orig_mod.bias`; loading them into the plain layer raises.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.otherscripts import other_runs
from dslint.rules.ranks.savedweights import Files, Weights, is_same_file
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL684",
    name="compiled-names-in-plain-model",
    kind="script",
    severity=Severity.WARNING,
    summary="a checkpoint of a compiled model is loaded into a plain one, whose names have no `_orig_mod.`",
    markers=(r"\bcompile\(", r"state_dict\(\)"),
    references=(
        "https://github.com/karpathy/nanoGPT/blob/master/train.py",
        "OptimizedModule in torch/_dynamo/eval_frame.py",
    ),
    depends_on_run=True,
    no_experiment="the names of the keys can be compared without ranks",
)
_KNOWS = re.compile(r"_orig_mod|orig_mod|\.compile\(\)")
_LOADS = re.compile(r"\b(?:load|restore|resume)\w*\(")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the save whose names the load cannot know."""
    compiled = [found.event for found in run.happenings("compiles")]
    if not compiled or not all(map(_replaces, compiled)) or _knows(run):
        return
    files = Files(run)
    kinds = {kind for event in compiled for kind in files.kinds(event.arguments.get("model"))}
    states = [found.event for found in run.happenings("state-dict")]
    saved = [w for w in files.saved(states) if w.kinds and w.kinds <= kinds and _after(run, compiled, w.event)]
    told: set[ast.AST] = set()
    for one in saved:
        place = next(_loads(run, files, one, compiled), None) if one.event.node not in told else None
        if place is not None:
            told.add(one.event.node)
            yield run.finding(
                META,
                one.event.module,
                one.event.node,
                "the model is compiled, and the names of its weights begin with `_orig_mod.`: a plain model lacks them",
                hint="Save `model._orig_mod.state_dict()`, or compile in place with `model.compile()`",
                related=(place[0].location(*place[1], "loaded here"),),
            )


def _knows(run: RunQuery) -> bool:
    return any(module.search(_KNOWS) for module in run.machine.program.modules())


def _replaces(event: Event) -> bool:
    """Return whether a call compiles a model that has no other name afterwards: `model = torch.compile(model)`."""
    given = event.nodes.get("model")
    above = event.module.parents.get(event.node)
    if event.may or given is None or not isinstance(above, ast.Assign) or len(above.targets) != 1:
        return False
    name = ast.unparse(given)
    if isinstance(given, ast.Call):
        return True
    return ast.unparse(above.targets[0]) == name and not _is_kept(event.module, name)


def _is_kept(module: Module, name: str) -> bool:
    """Return whether a module gives what has this name another name as well."""
    return any(ast.unparse(node.value) == name for node in module.nodes_of(ast.Assign))


def _after(run: RunQuery, compiled: list[Event], state: Event) -> bool:
    """Return whether a model is certainly compiled when its weights are taken."""
    order = [found.event for found in run.happenings("compiles", "state-dict")]
    places = {id(event): number for number, event in enumerate(order)}
    return any(places.get(id(event), len(order)) < places.get(id(state), -1) for event in compiled)


def _loads(
    run: RunQuery, files: Files, saved: Weights, compiled: list[Event]
) -> Iterator[tuple[RunQuery, tuple[Module, ast.AST]]]:
    """Yield the places that load a file with these weights into a model which nothing has compiled yet."""
    order = {id(found.event): number for number, found in enumerate(run.happenings("compiles", "loads-state-dict"))}
    first = min(order.get(id(event), len(order)) for event in compiled)
    for one in files.loaded():
        if _fits(saved, one) and order.get(id(one.event), len(order)) < first:
            yield run, (one.event.module, one.event.node)
    for other in other_runs(run, _LOADS):
        if other.has("compiles") or _knows(other):
            continue
        for one in Files(other).loaded():
            if _fits(saved, one):
                yield other, (one.event.module, one.event.node)


def _fits(saved: Weights, loaded: Weights) -> bool:
    """Return whether both are of one kind of model, in one file and under one key."""
    same = is_same_file(saved.name, loaded.name) and saved.kinds == loaded.kinds and not loaded.is_changed
    return bool(same) and (bool(saved.keys & loaded.keys) if saved.keys else not loaded.keys)


_NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)

    def forward(self, x):
        return self.body(x)
"""
_TRAIN = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from net import Net


def main():
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    model = Net().cuda()
%s    model = torch.compile(model)
    model = DDP(model, device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        model(torch.ones(4, 8).cuda()).mean().backward()
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save({"model": %s.state_dict()}, "last.pt")


main()
"""
_SAMPLE = """\
import torch

from net import Net

model = Net()
%smodel.load_state_dict(%s)
print(model(torch.ones(1, 8)))
"""
_READ = 'torch.load("last.pt", map_location="cpu")["model"]'
_RESUME = """\
    if os.path.exists("last.pt"):
        model.load_state_dict(torch.load("last.pt", map_location="cpu")["model"])
"""


def _files(train: tuple[str, str], sample: tuple[str, str] | None) -> dict[str, str]:
    files = {"net.py": _NET, "train.py": _TRAIN % train}
    return files if sample is None else {**files, "sample.py": _SAMPLE % sample}


EXAMPLES = (
    bad("another script", _files(("", "model.module"), ("", _READ)), at="train.py:22 warning"),
    bad("a resume before the model is compiled", _files((_RESUME, "model.module"), None), at="train.py:24"),
    good("the model inside is saved", _files(("", "model.module._orig_mod"), ("", _READ))),
    good("the other script compiles, too", _files(("", "model.module"), ("model = torch.compile(model)\n", _READ))),
    good("another key", _files(("", "model.module"), ("", _READ.replace('"model"', '"ema"')))),
    good("the plain model has a name", _files(("    plain = model\n", "plain"), ("", _READ))),
)
