"""The learning rate is multiplied by the number of processes after the state that holds the scaled one was restored.

**What.** `group["lr"] *= world_size` for the groups of an optimizer, on a way on which
`optimizer.load_state_dict(...)` has restored the optimizer before, in the same function or in others.

**Why it hurts.** The groups, with their learning rate, are part of the state of an optimizer. The checkpoint holds the
rate that the first start has multiplied, and each restart multiplies it again: with four processes it is four times
too large after the first one and sixteen times after the second. Nothing fails but the training.

**Fix.** Scale only where nothing was restored, or compute the rate from the setting:
`group["lr"] = args.lr * world_size`. Or scale before the state is loaded, which replaces the number.

**When it stays quiet.** A test that lets only a fresh start multiply; a rate that is multiplied before the state is
loaded, or that is made of the setting; a factor that nothing shows to be the number of processes; scripts that never
save the state of an optimizer; one process.

**Evidence.** Two gloo ranks, torch 2.13: a rate of 0.1 is 0.2 after the first start and 0.4 after a restart that
multiplies again; 0.2 where the restart leaves it alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event, Node
from dslint.python.queries.asked import in_words
from dslint.python.queries.derived import Derived
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import exclude
from dslint.rules.runs import RunQuery
from dslint.rules.training.optimizergroups import factor, is_group, optimizer_words

META = RuleMeta(
    code="DSL730",
    name="rate-scaled-after-restore",
    kind="script",
    severity=Severity.WARNING,
    summary="the learning rate is multiplied by the number of processes again after a restart has restored it",
    markers=(r"param_groups", r"load_state_dict", r"(?i)world|num_processes|gpus|size\(\)|device_count"),
    references=("https://github.com/mala-project/mala/pull/390",),
    depends_on_run=True,
)
_COUNT = re.compile(r"(?i)world_?size|num_(?:processes|replicas|tasks)|n_?(?:um)?_?gpus?\b|hvd\.size\(|device_count\(")
_SIZE_TEST = re.compile(r"(?i)world_?size|distributed|num_(?:processes|gpus)|n_?gpus?\b|ddp|horovod|hvd|scale|linear")
_SAVES = re.compile(r"(?i)(?:optim\w*|\bopt\w*)(?:\[\w+\])?\.state_dict\(")
_MOST = 200  # longer pieces of code are whole functions: what they mention says little


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each number of a group that is multiplied by the number of processes after the group was restored."""
    if run.context.is_one_process or not run.has("writes-item", "writes-parameter"):
        return
    if not any(module.search(_SAVES) for module in run.machine.program.modules()):
        return
    told: set[int] = set()
    for entry in run.ordered:
        restored: list[tuple[Event, tuple[Node, ...]]] = []
        for event, around in entry:
            if _restores(event):
                restored.append((event, around))
            elif id(event.node) not in told and "writes-item" in event.tags and _scales(run, event):
                load = next((load for load, place in restored if _follows(event, around, load, place)), None)
                if load is not None:
                    told.add(id(event.node))
                    yield _finding(run, event, load)


def _restores(event: Event) -> bool:
    return "loads-state-dict" in event.tags and event.api.endswith("Optimizer.load_state_dict") and not event.may


def _scales(run: RunQuery, event: Event) -> bool:
    """Return whether the learning rate of a group is multiplied by the number of processes."""
    by = factor(event) if is_group(event, ("lr", "initial_lr")) and not event.may else None
    if by is None:
        return False
    derived = Derived(run.machine.program.modules(), (tree for _, tree in run.trees()), by_field=True)
    pieces = derived.of(event.module, [by]) or [(event.module, by)]
    texts = (module.text(node) for module, node in pieces)
    return any(len(text) < _MOST and _COUNT.search(text) for text in texts)


def _follows(event: Event, around: tuple[Node, ...], load: Event, place: tuple[Node, ...]) -> bool:
    """Return whether who has restored the optimizer comes to the product as well, whatever tests there are."""
    names = [optimizer_words(event).rpartition(".")[2], _receiver(load).rpartition(".")[2]]
    if exclude(place, around) or (
        names[0] != names[1] and not all(re.search(r"(?i)^opt(?:im|imizer)?$", n) for n in names)
    ):
        return False
    passed = {id(node) for node in place}
    tests = [node for node in around if isinstance(node, Alt) and id(node) not in passed]
    return all(not (t.then_lanes and t.else_lanes) or _SIZE_TEST.search(in_words(t)) for t in tests)


def _receiver(load: Event) -> str:
    return load.module.text(load.node).partition(".load_state_dict")[0]


def _finding(run: RunQuery, event: Event, load: Event) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "The restored learning rate is multiplied by the number of processes again: each restart makes it larger",
        hint="Scale only where nothing was restored, or compute the rate from the setting, not from the group",
        related=(run.location(load.module, load.node, "restores the scaled rate"),),
    )


_SCRIPT = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model, optimizer, path):
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def main(path, lr):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    is_new = True
%s
    save(model, optimizer, path)


main("last.pt", 0.1)
"""
_RESTORE = """\
    if os.path.exists(path):
        state = torch.load(path)
        optimizer.load_state_dict(state["optimizer"])
        is_new = False
"""
_SCALE = "    for group in optimizer.param_groups:\n        group['lr'] *= %s\n"
_HELPER = """\
import torch


def scale(optimizer, factor):
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor


def resume(optimizer, path):
    optimizer.load_state_dict(torch.load(path)["optimizer"])
"""
_CALLS = """\
    from helpers import resume, scale

    if os.environ.get("RESUME"):
        resume(optimizer, path)
    if dist.get_world_size() > 1:
        scale(optimizer, float(dist.get_world_size()))
"""
_OBJECT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, lr, world_size):
        self.net, self.world_size = DistributedDataParallel(net), world_size
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=lr)

    def restore(self, path):
        self.optimizer.load_state_dict(torch.load(path)["optimizer"])

    def state(self):
        return {"optimizer": self.optimizer.state_dict()}

    def begin(self, path):
        if path:
            self.restore(path)
        %s
            self.optimizer.param_groups[0]["lr"] *= self.world_size


dist.init_process_group("nccl")
Trainer(torch.nn.Linear(4, 1), 0.1, dist.get_world_size()).begin(input())
"""
_COUNTED = "dist.get_world_size()"

EXAMPLES = (
    bad("after a restart, too", {"train.py": _SCRIPT % (_RESTORE + _SCALE % _COUNTED)}, at="train.py:23 warning"),
    bad("helpers of another file", {"train.py": _SCRIPT % _CALLS, "helpers.py": _HELPER}, at="helpers.py:6 warning"),
    bad("an object", {"train.py": _OBJECT % "if self.world_size > 1:"}, at="train.py:21 warning"),
    bad(
        "a factor that is made of the count",
        {
            "train.py": _SCRIPT
            % (f"    world = {_COUNTED}\n    factor = 64 * world / 256\n" + _RESTORE + _SCALE % "factor")
        },
        at="train.py:25 warning",
    ),
    good("scaled first, then replaced", {"train.py": _SCRIPT % (_SCALE % _COUNTED + _RESTORE)}),
    good(
        "a new start only",
        {
            "train.py": _SCRIPT
            % (_RESTORE + "    if is_new:\n    " + (_SCALE % _COUNTED).replace("\n    ", "\n        "))
        },
    ),
    good("an object that scales a new start", {"train.py": _OBJECT % "else:"}),
    good("made of the setting", {"train.py": _SCRIPT % (_RESTORE + _SCALE.replace("*=", "= lr *") % _COUNTED)}),
    good("another factor", {"train.py": _SCRIPT % (_RESTORE + _SCALE % "0.5")}),
)
