"""Weights of a wrapper are loaded into the bare model: every key has `module.` in front of it.

**What.** A training script saves `model.state_dict()` of a `DistributedDataParallel` in one file with the state of the
optimizer, and on a resume loads that file into the model before it is wrapped.

**Why it hurts.** The keys of the wrapper begin with `module.`, those of the model do not. `load_state_dict` raises
with missing keys; with `strict=False` it loads nothing and says nothing: the run goes on at epoch N with fresh weights
and the old state of the optimizer.

**Fix.** Save `model.module.state_dict()`, load after wrapping, or take the prefix off:
`{k.removeprefix("module."): v for k, v in state.items()}`.

**When it stays quiet.** A project that has `module.` in a text, or saves the weights of the bare model, too; a file
that gives nothing but weights, which may be others; wrappers that may be anything, such as those of accelerate.

**Evidence.** torch 2.13: `DistributedDataParallel(m).state_dict()` has the keys `module.weight`; `m.load_state_dict`
of it raises, and with `strict=False` returns all keys as missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.derived import Derived
from dslint.python.values import Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ddps import is_wrapper, knows_prefix, unwraps
from dslint.rules.plateaus import instances
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL647",
    name="wrapper-weights-in-bare-model",
    kind="script",
    severity=Severity.WARNING,
    summary="a checkpoint of the DDP wrapper is loaded into the bare model, whose keys have no `module.`",
    markers=(r"DistributedDataParallel|DDP", r"load_state_dict", r"state_dict\(\)"),
    references=(
        "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
        "https://github.com/NVIDIA/DeepLearningExamples/pull/693",
    ),
    depends_on_run=True,
    no_experiment="the names of the keys can be compared without ranks",
)
_OF_OPTIMIZER = ("torch.optim.",)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each load of a file with the weights of a wrapper into a model without one."""
    if knows_prefix(run) or unwraps(run):
        return
    given = [found.event for found in run.happenings("state-dict")]
    models = [event for event in given if _is_model(run, event)]
    if not models or not all(_is_of_ddp(run, event.receiver) for event in models):
        return
    loads = [found.event for found in run.happenings("loads-state-dict")]
    derived = Derived(run.machine.program.modules(), [tree for _, tree in run.trees()])
    resumed = {call for event in loads if event.api.startswith(_OF_OPTIMIZER) for call in _files(derived, event)}
    for event in loads:
        if event.api.startswith(_OF_OPTIMIZER) or event.may or not _is_bare(run, event.receiver):
            continue
        if resumed & _files(derived, event):
            yield _finding(run, event, models[0])


def _is_model(run: RunQuery, event: Event) -> bool:
    return event.api.startswith("torch.nn.") or any(is_wrapper(run, atom) for atom in instances(event.receiver))


def _is_of_ddp(run: RunQuery, value: Value | None) -> bool:
    found = instances(value)
    libraries = run.machine.libraries
    return bool(found) and all(isinstance(a.cls, str) and libraries.is_class(a.cls, "ddp") for a in found)


def _is_bare(run: RunQuery, value: Value | None) -> bool:
    """Return whether a value certainly is a model without a wrapper around it."""
    found = instances(value)
    if value is None or not found or len(found) != len(value.atoms):
        return False
    return all(bool(atom.cls) and not is_wrapper(run, atom) for atom in found)


def _files(derived: Derived, event: Event) -> set[ast.AST]:
    """Return the calls of `torch.load` behind the state that is loaded."""
    state = event.nodes.get("state_dict")
    if state is None and isinstance(event.node, ast.Call) and event.node.args:
        state = event.node.args[0]
    pieces = derived.of(event.module, [state]) if state is not None else None
    calls = (node for _, piece in pieces or () for node in ast.walk(piece) if isinstance(node, ast.Call))
    return {call for call in calls if ast.unparse(call.func) in ("torch.load", "load")}


def _finding(run: RunQuery, event: Event, saved: Event) -> Finding:
    strict = event.arguments.get("strict")
    is_silent = strict is not None and strict.constants == (False,)
    what = "nothing is loaded, and nobody hears of it" if is_silent else "every key is missing, and this raises"
    return run.finding(
        META,
        event.module,
        event.node,
        f"the file holds the weights of the DDP wrapper, whose keys begin with `module.`; in the bare model {what}",
        hint="Save `model.module.state_dict()`",
        related=(run.location(saved.module, saved.node, "the weights of the wrapper are saved"),),
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
_SILENT = 'state["model"], strict=False'

EXAMPLES = (
    bad("silent", {"train.py": _SCRIPT % (_SILENT, "state", "")}, at="train.py:11 warning"),
    bad("loud", {"train.py": _SCRIPT % ('state["model"]', "state", "")}, at="train.py:11 warning"),
    good("the model is saved", {"train.py": _SCRIPT % (_SILENT, "state", ".module")}),
    good(
        "the prefix is taken off",
        {
            "train.py": _SCRIPT
            % ('{k.removeprefix("module."): v for k, v in state["model"].items()}, strict=False', "state", "")
        },
    ),
    good("another file for the weights", {"train.py": _SCRIPT % (_SILENT, "torch.load('optimizer.pt')", "")}),
)
