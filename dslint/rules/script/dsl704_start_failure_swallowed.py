"""A broad `except` goes on after the process group could not be made, or the checkpoint could not be restored.

**What.** `init_process_group`, or a helper that calls it, is in a `try` whose `except Exception` prints something
and lets the process go on as one process. Or the whole restart does: the checkpoint is read, model and optimizer get
their states, and whatever fails there begins at epoch 0.

**Why it hurts.** A port in use, a wrong address or a rank that comes too late is then no error: each process goes on
alone as rank 0 of 1, trains on all data and writes over the checkpoints of the others, or fails much later at a call
that needs the group, with a message about something else. And a checkpoint that is truncated, or that one rank cannot
read, starts the run anew, on that rank only or on all: the next save writes over what was left of the old run.

**Fix.** Let it raise. Test for the case that is meant: whether the launcher has set `RANK`, whether the file exists.

**When it stays quiet.** The handler raises or ends the process, tries another way, or is for a single case
(`KeyError`, `FileNotFoundError`); the program stops by what the handler has set; turns of a loop that try again; of
restarts: the state of the optimizer is not restored there, nothing is saved, no training.

**Evidence.** torch 2.13, run: at a port in use `init_process_group` raises `DistNetworkError` (a `RuntimeError`), and
after an `except Exception` the process goes on as rank 0 without a group. `torch.load` raises `RuntimeError` at a
truncated file and `EOFError` at an empty one. Read in the code of I-JEPA and VITS.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Seq, Try, events
from dslint.python.queries.caught import Caught, handlers
from dslint.python.queries.groupless import Lonely
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import catches
from dslint.rules.ranks.groups import called, lonely_events, makes_group
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL704",
    name="start-failure-swallowed",
    kind="script",
    severity=Severity.WARNING,
    summary="a broad except goes on after the process group or the restart has failed",
    markers=(r"\n[ \t]+except\b", r"init_process_group|init_distributed|load_state_dict|load_checkpoint|load_state"),
    references=(
        "https://github.com/facebookresearch/ijepa/blob/main/src/utils/distributed.py",
        "https://github.com/jaywalnut310/vits/blob/main/train.py",
    ),
    depends_on_run=True,
    no_experiment="that a handler goes on after a failure can be read in the code",
)
_OF_GROUP = ("RuntimeError", "DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
# What a process does that goes on with its work.
_WORKS = frozenset({
    *("optimizer-step", "backward", "makes-optimizer", "makes-engine", "wraps-model", "makes-loader", "forward"),
    *("saves", "trainer-train", "collective", "barrier", "makes-scheduler", "moves-to-device"),
})  # fmt: skip
_STEPS = ("optimizer-step", "engine-step", "trainer-train", "scaler-step")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each handler behind which a process goes on without its group, or without what it had saved."""
    yield from _of_groups(run)
    yield from _of_restarts(run)


# -- the process group ------------------------------------------------------------------------------------------


def _of_groups(run: RunQuery) -> Iterator[Finding]:
    seen: set[int] = set()
    for _, alone in lonely_events(run, _works, lambda _: False, _tries):
        for lonely in alone:
            found = _handler(lonely)
            if found is not None and id(found[1]) not in seen:
                seen.add(id(found[1]))
                yield _of_group(run, found, lonely.event)


def _tries(tree: Seq) -> bool:
    return any(isinstance(node, Try) for node in tree.flat or ())


def _works(event: Event) -> bool:
    return bool(event.tags & _WORKS) and not makes_group(event)


def _handler(lonely: Lonely) -> tuple[Try, ast.ExceptHandler] | None:
    """Return the handler by which the program has come on, where it may hide that no group could be made."""
    for side in lonely.way.mode:
        if isinstance(side.node, Try) and side.number and isinstance(side.node.node, ast.Try):
            handler = side.node.node.handlers[side.number - 1]
            if catches([handler], *_OF_GROUP) and any(makes_group(event) for event in events(side.node.body)):
                return side.node, handler
    return None


def _of_group(run: RunQuery, found: tuple[Try, ast.ExceptHandler], work: Event) -> Finding:
    node, handler = found
    maker = next(event for event in events(node.body) if makes_group(event))
    return run.finding(
        META,
        node.module,
        handler,
        f"`{_head(node.module, handler)}` hides why `{called(run, maker)}` failed: each process goes on alone",
        hint="Let it raise; go on without a group only where no launcher has set `RANK`",
        related=(
            run.location(maker.module, maker.node, "the group is made here"),
            run.location(work.module, work.node, "the process goes on to this"),
        ),
    )


def _head(module: Module, handler: ast.ExceptHandler) -> str:
    return f"except {module.text(handler.type)}" if handler.type is not None else "except"


# -- the restart ------------------------------------------------------------------------------------------------


def _of_restarts(run: RunQuery) -> Iterator[Finding]:
    if not run.has(*_STEPS) or not run.has("saves", "saves-collective") or not run.has("loads"):
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        for caught in handlers(tree):
            if id(caught.handler) not in seen and _restarts(caught):
                seen.add(id(caught.handler))
                yield _of_restart(run, caught)


def _restarts(caught: Caught) -> bool:
    """Return whether a handler begins anew where a whole restart has failed."""
    if caught.ends or caught.is_repeated or not catches([caught.handler]):
        return False
    if any(isinstance(inner, ast.Raise) for inner in ast.walk(caught.handler)) or _reads(caught.block):
        return False
    return _reads(caught.node.body) and _restores(caught.node.body)


def _reads(block: Seq) -> bool:
    return any("loads" in event.tags for event in events(block))


def _restores(block: Seq) -> bool:
    """Return whether the state of an optimizer is set, too: what begins anew is a run, no pretrained model."""
    sets = (event for event in events(block) if "loads-state-dict" in event.tags or "loads" in event.tags)
    return any(".optim" in event.api or "Engine" in event.api or "Accelerator" in event.api for event in sets)


def _of_restart(run: RunQuery, caught: Caught) -> Finding:
    module = caught.node.module
    read = next(event for event in events(caught.node.body) if "loads" in event.tags)
    return run.finding(
        META,
        module,
        caught.handler,
        f"`{_head(module, caught.handler)}` starts anew where a checkpoint cannot be read: the next save replaces it",
        hint="Test whether there is a checkpoint, and let everything else raise",
        related=(run.location(read.module, read.node, "the checkpoint is read here"),),
    )


_SETUP = """\
import os

import torch
import torch.distributed as dist


def setup():
    rank, size = int(os.environ.get("SLURM_PROCID", 0)), int(os.environ.get("SLURM_NTASKS", 1))
    try:
        os.environ["MASTER_ADDR"] = os.environ["SLURM_LAUNCH_NODE_IPADDR"]
        torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
        dist.init_process_group("nccl", rank=rank, world_size=size)
    %s
    return rank, size


rank, size = setup()
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in torch.rand(100, 8, 4):
    model(batch.cuda()).sum().backward()
    optimizer.step()
"""
_ALONE = "except Exception as error:\n        print('not distributed', error)\n        rank, size = 0, 1"
_RAISES = "except Exception as error:\n        print('no group', error)\n        raise"
_ONE_CASE = "except KeyError:\n        rank, size = 0, 1"
_HELPER = """\
import sys

import deepspeed
import torch


def join():
    deepspeed.init_distributed("nccl")


class Worker:
    def __init__(self):
        self.joined = True
        try:
            join()
        except:
            self.joined = False

    def run(self):
        data = torch.utils.data.DataLoader(list(range(100)), batch_size=4)
        return [batch.sum() for batch in data]


worker = Worker()
%sprint(worker.run())
"""
_AGAIN = """\
import os
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
for _ in range(5):
    try:
        dist.init_process_group("nccl")
        break
    except RuntimeError:
        time.sleep(10)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
"""
_RESTART = """\
import os

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DDP(torch.nn.Linear(4, 4).cuda())
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)


def restore(path):
    %s


start = restore("last.pt")
for epoch in range(start, 10):
    for batch in torch.rand(100, 8, 4):
        optimizer.zero_grad()
        model(batch.cuda()).sum().backward()
        optimizer.step()
    if torch.distributed.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
torch.distributed.destroy_process_group()
"""
_READS = """\
state = torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["epoch"] + 1"""
_BARE = f"try:\n        {_READS}\n    except %s:\n        return 0"
_TESTED = f"if os.path.exists(path):\n        {_READS}\n    return 0"

EXAMPLES = (
    bad("goes on as one process", {"train.py": _SETUP % _ALONE}, at="train.py:13 warning"),
    bad("a helper in a class, and a bare except", {"train.py": _HELPER % ""}, at="train.py:16 warning"),
    bad("a restart that begins anew", {"train.py": _RESTART % (_BARE % "Exception")}, at="train.py:18 warning"),
    good("the handler raises", {"train.py": _SETUP % _RAISES}),
    good("one case is meant", {"train.py": _SETUP % _ONE_CASE}),
    good("who has not joined stops", {"train.py": _HELPER % "if not worker.joined:\n    sys.exit(1)\n"}),
    good("tried again", {"train.py": _AGAIN}),
    good("there is no checkpoint yet", {"train.py": _RESTART % (_BARE % "FileNotFoundError")}),
    good("the file is looked for", {"train.py": _RESTART % _TESTED}),
)
