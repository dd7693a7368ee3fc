"""Gradients are accumulated over several micro batches, and clipped in each of them.

**What.** `clip_grad_norm_(model.parameters(), 1.0)` after each backward pass, and the step of the optimizer in every
n-th turn only: `if (step + 1) % accumulation == 0: optimizer.step()`.

**Why it hurts.** What is clipped is the sum so far. With each further micro batch the first ones are made smaller once
more, so that the last one decides the step: the effective batch is hardly larger than a micro batch, and the result
depends on the order of the samples. With a GradScaler, its second `unscale_` before a step raises a `RuntimeError`.

**Fix.** Clip where the step is, once: `if (step + 1) % accumulation == 0: clip_grad_norm_(...); optimizer.step()`.

**When it stays quiet.** A step, or `zero_grad()`, in every turn; a clipping under the test of the step, or under any
other test of the turn; clipping by value; DeepSpeed, which clips by itself. A note where the number of micro batches is
1 by default.

**Evidence.** torch 2.13, two gloo ranks: of two micro batches whose gradients point in two directions, the first has a
twentieth of the weight of the second.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Loop
from dslint.python.queries.turns import Turns
from dslint.python.values import Const
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.microbatches import STEPS, divisor_of_steps, inside, size_of_group

META = RuleMeta(
    code="DSL774",
    name="clipped-in-every-turn",
    kind="script",
    severity=Severity.WARNING,
    summary="accumulated gradients are clipped in every micro batch, and not once before the step",
    markers=(r"clip_grad", r"%"),
    references=(
        "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        "https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a clipping of every turn whose step runs in some turns only."""
    if run.stage is not None:
        return
    seen: set[int] = set()
    steps = list(run.occurrences(*STEPS))
    emptied = list(run.occurrences("zero-grad"))
    passes = list(run.occurrences("backward"))
    for found in run.occurrences("clip-grad"):
        event = found.event
        loop = next((node for node in reversed(found.around) if isinstance(node, Loop)), None)
        if loop is None or event.may or id(event.node) in seen or "value" in event.api.rpartition(".")[2]:
            continue
        turns = Turns(run.machine, loop)
        mine = inside(loop, steps)
        divisor = divisor_of_steps(turns, mine)
        if divisor is None or _asks_for_turn(turns, found) or not inside(loop, passes):
            continue
        if any(turns.divisor(turns.tests(h.around, h.event)) is None for h in inside(loop, emptied)):
            continue
        size = size_of_group(run, divisor)
        if size == 1 and isinstance(divisor, Const):
            continue
        seen.add(id(event.node))
        yield _finding(run, found, mine[0], size)


def _asks_for_turn(turns: Turns, found: Happening) -> bool:
    """Return whether a test around a clipping may leave out turns: it asks for their number, or nobody can read it."""
    if turns.divisor(turns.tests(found.around, found.event)) is not None:
        return True
    tests = [node.node for node in found.around if isinstance(node, Alt)]
    return any("step" in ast.unparse(test.test).lower() or "sync" in ast.unparse(test.test).lower()
               for test in tests if isinstance(test, ast.If))  # fmt: skip


def _finding(run: RunQuery, found: Happening, step: Happening, size: int | None) -> Finding:
    event = found.event
    is_sure = size is not None and size > 1
    return run.finding(
        META,
        event.module,
        event.node,
        f"The sum so far is clipped {f'{size} times for each step' if is_sure else 'in each micro batch of a step'}:"
        " the first micro batches hardly count",
        hint="Clip once, where the optimizer steps",
        related=(run.location(step.event.module, step.event.node, "the step, in some iterations only"),),
        severity=None if is_sure else Severity.INFO,
        facts={"gas": size},
    )


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(args, model, optimizer, loader):
    for step, (x, y) in enumerate(loader):
        loss = (model(x) - y).square().mean() / args.accumulation
        loss.backward()
%s

def main(loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulation", type=int, default=%s)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    train(args, model, torch.optim.SGD(model.parameters(), lr=0.1), loader)


if __name__ == "__main__":
    main(torch.load("loader.pt"))
"""
_CLIP = "        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)\n"
_STEP = (
    "        if (step + 1) % args.accumulation == 0:\n            optimizer.step()\n            optimizer.zero_grad()\n"
)
_INSIDE = _STEP.replace("            optimizer.step", "    " + _CLIP + "            optimizer.step")
_BOTH = "        optimizer.step()\n        optimizer.zero_grad()\n"
_IF = "        if args.clip:\n    " + _CLIP
_SCALER = """\
import torch
from accelerate import Accelerator

ACCUMULATION = 4


class Scaler:
    def __init__(self):
        self.scaler = torch.cuda.amp.GradScaler()

    def __call__(self, loss, optimizer, parameters, update):
        self.scaler.scale(loss).backward()
%s            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        if update:
            self.scaler.step(optimizer)
            self.scaler.update()


def epoch(model, optimizer, loader):
    scaler = Scaler()
    for number, batch in enumerate(loader):
        scaler(model(batch).mean(), optimizer, model.parameters(), number %% ACCUMULATION == ACCUMULATION - 1)
        if (number + 1) %% ACCUMULATION == 0:
            optimizer.zero_grad()


def main(loader):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    epoch(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)


torch.distributed.init_process_group("nccl")
main(torch.utils.data.DataLoader(torch.load("data.pt")))
"""

EXAMPLES = (
    bad("an option with a default", {"train.py": _TRAIN % (_CLIP + _STEP, "8")}, at="train.py:12 warning"),
    bad("where clipping is asked for", {"train.py": _TRAIN % (_IF + _STEP, "8")}, at="train.py:13 warning"),
    bad("none by default", {"train.py": _TRAIN % (_CLIP + _STEP, "1")}, at="train.py:12 info"),
    bad("in an object that scales", {"train.py": _SCALER % "        if parameters is not None:\n"},
        at="train.py:14 warning"),
    good("in one that clips for its step", {"train.py": _SCALER % "        if update:\n"}, select="DSL774"),
    good("where the step is", {"train.py": _TRAIN % (_INSIDE, "8")}, select="DSL774"),
    good("a step in every turn", {
        "train.py": _TRAIN % (_CLIP + _BOTH, "8")}, select="DSL774"),
    good("nothing is kept from turn to turn", {
        "train.py": _TRAIN % (_CLIP + _STEP + "        optimizer.zero_grad()\n", "8")}, select="DSL774"),
    good("each value", {"train.py": _TRAIN % (_CLIP.replace("norm_", "value_") + _STEP, "8")}, select="DSL774"),
)  # fmt: skip
