"""A seed of each rank's own is replaced by one that all ranks share.

**What.** `torch.manual_seed(args.seed + rank)` and later, in the same run, `torch.manual_seed(config.seed)`: in a
set-up of the trainer, in a helper that makes the run deterministic, before the loaders are made.

**Why it hurts.** What counts is the last seed. From there on all ranks draw the same dropout masks, noise, negatives
and augmentations, so that a batch over eight GPUs has an eighth of the variety, and the first seed, which was meant to
prevent that, has no effect: nor has the option that it came from. Nothing fails.

**Fix.** Leave the second seed out, or put the rank into it as well.

**When it stays quiet.** A seed with the rank comes again after it; only some ways or ranks come to the second one; its
number may differ between ranks; another generator (`random`, NumPy and torch have one each); tensor, pipeline and
sequence parallel scripts; runs that train nothing.

**Evidence.** `torch.manual_seed` sets the state of the generator: two processes that seed with 0 and 1 and then both
with 42 draw the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event, Node
from dslint.python.varies import CLOCK, DATA, HOST, LOST, RANDOM, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.ownseeds import is_own_seed, must_draw_alike
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL736",
    name="seed-of-rank-replaced",
    kind="script",
    severity=Severity.WARNING,
    summary="a seed with the rank is replaced by one that is the same on all ranks",
    markers=(r"seed\w*\(", r"rank"),
    references=("https://pytorch.org/docs/stable/notes/randomness.html",),
    depends_on_run=True,
    no_experiment="that one seed gives one row of numbers needs no ranks",
)
_OWN = RANKED | RANDOM | CLOCK | HOST | LOST | DATA
_TRAINS = ("backward", "engine-backward", "gives-loss", "trainer-train")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the last seed of torch, of NumPy or of `random` that all ranks share, after one of each rank's own."""
    if run.context.is_one_process or not run.has(*_TRAINS) or must_draw_alike(run):
        return
    for order in run.ordered:
        last: dict[str, tuple[Event, tuple[Node, ...]]] = {}
        replaced: dict[str, tuple[Event, Event]] = {}
        for event, around in order:
            if "seeds" not in event.tags or event.receiver is not None:
                continue
            if is_own_seed(event):
                last[event.api] = event, around
                replaced.pop(event.api, None)
            elif event.api in last and _is_shared(run, event) and _is_passed(around, last[event.api][1]):
                replaced[event.api] = event, last.pop(event.api)[0]
            else:
                replaced.pop(event.api, None)
        if replaced:
            yield _finding(run, *next(iter(replaced.values())))
            return


def _is_shared(run: RunQuery, event: Event) -> bool:
    """Return whether all ranks certainly seed with the same number."""
    differs = any(varies & _OWN for varies, _, _ in event.snapshot.values())
    return not (differs or event.may or event.open or not event.arguments) and event.lanes == run.machine.worlds.full


def _is_passed(around: tuple[Node, ...], before: tuple[Node, ...]) -> bool:
    """Return whether every run that seeds first comes to the second seed: no test of its own is around it."""
    tests = [node for node in around if isinstance(node, Alt) and node.then_lanes & node.else_lanes]
    return all(any(node is known for known in before) for node in tests)


def _finding(run: RunQuery, shared: Event, own: Event) -> Finding:
    text = run.text(shared.module, shared.node, 45)
    return run.finding(
        META,
        shared.module,
        shared.node,
        f"`{text}` replaces the seed of each rank: all ranks draw alike from here on",
        hint="Leave this seed out, or put the rank into it",
        related=(run.location(own.module, own.node, "the seed of each rank"),),
    )


_TRAIN = """\
import argparse
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def set_up(model, seed):
    %s
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return DDP(model.cuda())


def main(loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    %s
    model = set_up(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1)), 42)
    %s
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
    dist.destroy_process_group()
    print(args.fixed)


main(torch.load("data.pt"))
"""
_RANK = "torch.manual_seed(args.seed + dist.get_rank())"
_ALL = "torch.random.manual_seed(seed)"


def _case(inside: str, before: str = _RANK, after: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % (inside, before, after or "print(args.seed)")}


EXAMPLES = (
    bad("in the set-up of a trainer", _case(_ALL), "train.py:12"),
    bad(
        "the generator of NumPy",
        _case("np.random.seed(7)", "np.random.seed(args.seed + dist.get_rank())"),
        "train.py:12",
    ),
    bad(
        "the rank of the environment, and the option itself",
        _case("pass", 'torch.manual_seed(args.seed + int(os.environ["RANK"]))', "torch.manual_seed(args.seed)"),
        "train.py:25",
    ),
    good("the rank is in the last seed", _case(_ALL, "torch.manual_seed(args.seed)", _RANK)),
    good("another one with the rank comes after it", _case(_ALL, _RANK, _RANK)),
    good("only where an option asks for it", _case("pass", _RANK, "if args.fixed:\n        torch.manual_seed(42)")),
    good("another generator", _case("random.seed(seed)")),
)
