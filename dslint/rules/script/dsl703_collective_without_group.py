"""A run that makes no process group still comes to a call that needs one.

**What.** The group is made in some modes only: the helper returns early where no launcher has set `RANK`, a flag
`--debug` passes it over, an `except` branch goes on without it. The same run then comes to `dist.barrier()`, a
reduction, `dist.get_rank()`, `destroy_process_group()`, `DistributedDataParallel(...)` or a `DistributedSampler`
without numbers, and no test of that mode comes before it.

**Why it hurts.** `ValueError: Default process group has not been initialized`. Where the script divides its other work
by `if args.distributed:`, that mode is meant to work, and the call often comes at the end of an epoch or of the
evaluation: the run on one GPU is lost after hours.

**Fix.** Ask before the call: `if dist.is_initialized():`, or test what decides whether the group is made. Or make a
group of one process, and use it in all modes.

**When it stays quiet.** A test of the job, of the mode or of something that it sets lies between; the mode stops the
program; code that may make a group is not known; the call is tried and its error is caught. A note where the mode is
not used: the script asks nowhere else for it, or its commands use a launcher, which sets the variables.

**Evidence.** torch 2.13 without a group: `barrier`, `all_reduce`, `get_rank` and `DistributedDataParallel` raise
`ValueError`, `destroy_process_group()` an `AssertionError`. BLIP and ALBEF are examples of the barrier.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Seq, Try, events
from dslint.python.queries.groupless import Lonely
from dslint.python.queries.groupmodes import Side, makes_unread
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import called, lonely_events, makes_group
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL703",
    name="collective-without-group",
    kind="script",
    severity=Severity.WARNING,
    summary="a run that makes no process group still comes to a call that needs one, and raises",
    markers=(
        r"init_process_group|init_distributed",
        r"barrier|reduce|gather|broadcast|get_rank|get_world_size|destroy_process_group|DistributedDataParallel|DDP\(",
    ),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.is_initialized",
        "https://github.com/salesforce/BLIP/blob/main/train_vqa.py",
    ),
    depends_on_run=True,
    no_experiment="one process shows what a call without a group raises, and nothing has to run for it",
)
_NEEDS = frozenset({"collective", "object-collective", "barrier", "makes-group", "destroys-group", "needs-group"})
_MAKES_ITSELF = frozenset({"torch.distributed.init_device_mesh", "torch.distributed.rendezvous"})
_REFUSES = re.compile(r"(?i)\.(?:error|critical)\(|(?:not |un)(?:supported|known)|invalid|assert ")
_OF_LAUNCHER = re.compile(r"environ|getenv|SLURM|OMPI")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call that needs a group, on the first that a mode without one comes to."""
    seen: set[int] = set()
    for tree, found in lonely_events(run, _needs, _may_make):
        lonely = [each for each in found if not any(map(_is_other, each.way.mode)) and not _is_rest(each)]
        judged = [(each, _severity(run, each)) for each in lonely]
        for each, severity in sorted(judged, key=lambda pair: pair[1].value):
            if id(each.event.node) not in seen:
                seen.add(id(each.event.node))
                yield _finding(run, each, severity, tree)


def _may_make(event: Event) -> bool:
    return not makes_group(event) and bool(event.tags & {"starts-group", "trainer", "makes-engine"})


def _needs(event: Event) -> bool:
    """Return whether a call raises where there is no default group."""
    module, _, _ = event.api.rpartition(".")
    if module in ("torch.distributed", "deepspeed.comm") and event.api not in _MAKES_ITSELF:
        group = event.arguments.get("group")
        is_default = group is None or group.constants == (None,)
        return is_default and not event.open and bool(event.tags & _NEEDS) and not makes_group(event)
    if event.api == "torch.utils.data.DistributedSampler":
        return not event.open and not {"num_replicas", "rank"} <= set(event.arguments)
    return event.api == "torch.nn.parallel.DistributedDataParallel" and "process_group" not in event.arguments


def _is_other(side: Side) -> bool:
    """Return whether a side may make a group in a way that is not known, or is meant for what cannot be."""
    return makes_unread(side, makes_group) or bool(_REFUSES.search("\n".join(map(ast.unparse, side.code))))


def _is_rest(lonely: Lonely) -> bool:
    """Return whether the mode is what a chain of tests leaves over, which names the values of one setting."""
    tests = [getattr(side.node.node, "test", None) for side in lonely.way.mode]
    asked = [ast.unparse(test.left) for test in tests if isinstance(test, ast.Compare) and not _is_variable(test)]
    return len(set(asked)) < len(asked)


def _is_variable(test: ast.Compare) -> bool:
    return isinstance(test.left, ast.Constant)  # `"RANK" in os.environ`


def _severity(run: RunQuery, lonely: Lonely) -> Severity:
    """A note where nobody means to run in this mode, as far as the script and its commands tell."""
    texts = [_test(run, side, 1000) for side in lonely.way.mode]
    if any(
        isinstance(side.node, Try) or _OF_LAUNCHER.search(text)
        for side, text in zip(lonely.way.mode, texts, strict=True)
    ):
        is_launched = run.context.launcher.get_or("python") != "python" or run.context.world_size.get_or(1) > 1
        return Severity.WARNING if lonely.way.is_handled and not is_launched else Severity.INFO
    return Severity.WARNING


def _test(run: RunQuery, side: Side, limit: int) -> str:
    return run.text(side.node.module, getattr(side.node.node, "test", side.node.node), limit)


def _finding(run: RunQuery, lonely: Lonely, severity: Severity, tree: Seq) -> Finding:
    event, mode = lonely.event, lonely.way.mode
    side = next((each for each in mode if "SLURM" not in _test(run, each, 1000)), mode[0])
    if isinstance(side.node, Try):
        what = f"which fails at the `try` in line {getattr(side.node.node, 'lineno', 0)}"
    else:
        what = f"in which `{_test(run, side, 38)}` is {'true' if side.number else 'false'}"
    place = getattr(side.node.node, "test", side.node.node)
    maker = next(found for found in events(tree) if makes_group(found))
    name = called(run, event)
    name = name if len(name) <= 34 else name.rpartition(".")[2]
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{name}` needs a process group, and a run {what} makes none: it raises here",
        hint="Call it under `if dist.is_initialized():`, or under the test that decides whether the group is made",
        severity=severity,
        related=(
            run.location(side.node.module, place, "the run goes on from here without a group"),
            run.location(maker.module, maker.node, "the group is made here"),
        ),
    )


_HELPER = """\
import argparse
import os

import torch
import torch.distributed as dist


def init_distributed_mode(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    else:
        %s
    args.distributed = True
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl")


def is_dist():
    return dist.is_available() and dist.is_initialized()


def world_size():
    return dist.get_world_size() if is_dist() else 1


def main(args):
    init_distributed_mode(args)
    model = torch.nn.Linear(4, 4).cuda()
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
    for epoch in range(10):
        model(torch.rand(4, 4).cuda())
        %s
    if is_dist():
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    main(parser.parse_args())
"""
_ON = 'print("Not using distributed mode")\n        args.distributed = False\n        return'
_STOP = 'raise RuntimeError("start me with torchrun")'
_DEBUG = """\
import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--debug", action="store_true")
args = parser.parse_args()
rank = 0
if not args.debug:
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank %% torch.cuda.device_count())
print(rank)
%s
"""
_CHAIN = """\
import argparse
import os

import deepspeed
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--engine", choices=["ddp", "deepspeed"])
args = parser.parse_args()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
if args.engine == "ddp":
    dist.init_process_group("nccl")
elif args.engine == "deepspeed":
    deepspeed.init_distributed()
for epoch in range(10):
    dist.barrier()
dist.destroy_process_group()
"""
_TRIED = """\
import os

import torch
import torch.distributed as dist


class Job:
    def __init__(self):
        self.size = self.start()

    def start(self):
        try:
            size = int(os.environ["SLURM_NTASKS"])
            rank = int(os.environ["SLURM_PROCID"])
        except KeyError:
            return 1
        dist.init_process_group("nccl", rank=rank, world_size=size)
        return size

    def sync(self, loss):
        %s
        return loss / self.size


job = Job()
if job.size > 1:
    torch.cuda.set_device(dist.get_rank() %% torch.cuda.device_count())
print(job.sync(torch.ones(1, device="cuda")))
if job.size > 1:
    dist.destroy_process_group()
"""
_NUMBER = """\
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

local_rank = int(os.environ.get("LOCAL_RANK", -1))
distributed = local_rank != -1
if distributed:
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
data = list(range(1000))
if distributed:
    print("several processes")
%s
for batch in DataLoader(data, batch_size=8, sampler=sampler):
    print(batch)
if distributed:
    dist.destroy_process_group()
"""

EXAMPLES = (
    bad(
        "a barrier after each epoch",
        {"train.py": _HELPER % (_ON, "dist.barrier()")},
        at="train.py:36 warning",
    ),
    bad(
        "a flag for one process",
        {"train.py": _DEBUG % "dist.destroy_process_group()"},
        at="train.py:15 warning",
    ),
    bad(
        "a class that catches the missing variable",
        {"train.py": _TRIED % "dist.all_reduce(loss)"},
        at="train.py:21 warning",
    ),
    bad(
        "a sampler that asks the group",
        {"train.py": _NUMBER % "sampler = DistributedSampler(data, shuffle=False)"},
        at="train.py:15 warning",
    ),
    bad(
        "the commands of the project always use torchrun",
        {"train.py": _HELPER % (_ON, "dist.barrier()"), "run.sh": "torchrun --nproc_per_node 8 train.py\n"},
        at="train.py:36 info",
    ),
    good("by the flag of the mode", {"train.py": _HELPER % (_ON, "if args.distributed:\n            dist.barrier()")}),
    good("the group is asked", {"train.py": _HELPER % (_ON, "if is_dist():\n            dist.barrier()")}),
    good("the size is asked", {"train.py": _HELPER % (_ON, "if world_size() > 1:\n            dist.barrier()")}),
    good("that mode stops", {"train.py": _HELPER % (_STOP, "dist.barrier()")}),
    good("what a chain of tests leaves over", {"train.py": _CHAIN}),
    good("the same flag", {"train.py": _DEBUG % "if not args.debug:\n    dist.destroy_process_group()"}),
    good(
        "what the helper returns is asked",
        {"train.py": _TRIED % "if self.size > 1:\n            dist.all_reduce(loss)"},
    ),
    good(
        "nothing to send in a world of one",
        {"train.py": _TRIED % "for _ in range(self.size - 1):\n            dist.all_reduce(loss)"},
    ),
    good(
        "asked in the same expression",
        {"train.py": _NUMBER % "main = not distributed or dist.get_rank() == 0\nprint(main)\nsampler = None"},
    ),
    good("a sampler that is told", {"train.py": _NUMBER % "sampler = DistributedSampler(data, 1, 0, shuffle=False)"}),
)
