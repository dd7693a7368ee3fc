"""Gradients are accumulated by hand over several micro batches, and reduced over the ranks in each of them.

**What.** The loop of a model in DDP, or of one that accelerate has prepared, runs the backward pass in every turn and
the step of the optimizer in every n-th: `if (step + 1) % accumulation == 0: optimizer.step()`; or a loop inside goes
through the micro batches of one step. Nothing switches the reduction off in between.

**Why it hurts.** `DistributedDataParallel` reduces all gradients over all ranks in every backward pass. With 16 micro
batches for a step 15 of 16 reductions are for nothing, and in each turn all ranks wait for the slowest one. The result
is right; the time is lost, most of it between machines.

**Fix.** `with model.no_sync():` around forward and backward pass of all micro batches but the last one of a step
(`accelerator.no_sync(model)`); with accelerate `gradient_accumulation_steps=n` and
`with accelerator.accumulate(model):`.

**When it stays quiet.** The project speaks of `no_sync` or its relatives anywhere; a step in every turn; a number of
micro batches that nobody knows or whose default is 1 makes it an information; DeepSpeed, FSDP and other strategies;
one process.

**Evidence.** Two gloo ranks, torch 2.13 and accelerate 1.15: 8 micro batches in groups of 4 reduce gradients 8 times
instead of 2.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Loop
from dslint.python.queries.turns import Turns
from dslint.python.values import Const, Tuple
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import ACCELERATOR
from dslint.rules.training.microbatches import STEPS, divisor_of_steps, inside, size_of_group
from dslint.rules.wrapping.ddppasses import PLUGINS, is_reduced

META = RuleMeta(
    code="DSL638",
    name="gradients-reduced-in-every-turn",
    kind="script",
    severity=Severity.WARNING,
    summary="gradients are accumulated by hand, and DDP reduces them in every micro batch: no `no_sync`",
    markers=(r"DistributedDataParallel|DDP|Accelerator", r"backward\(", r"%|\bfor\b"),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization",
        "https://github.com/huggingface/accelerate/pull/106",
    ),
    depends_on_run=True,
)
# Words of projects that know when gradients are reduced.
_KNOWS = re.compile(
    r"no_sync|no_backward_sync|require_backward_grad_sync|set_requires_gradient_sync|is_last_backward|accumulate\("
    r"|gradient_accumulation_plugin|sync_gradients"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each backward pass of every turn whose step runs in some turns only."""
    if run.context.is_one_process or run.stage is not None or _is_other(run):
        return
    if any(module.search(_KNOWS) for module in run.machine.program.modules()):
        return
    seen: set[int] = set()
    steps = list(run.occurrences(*STEPS))
    for found in run.occurrences("backward"):
        loop = next((node for node in reversed(found.around) if isinstance(node, Loop)), None)
        if loop is None or found.event.may or id(found.event.node) in seen or not is_reduced(run, found.event):
            continue
        turns = Turns(run.machine, loop)
        mine = inside(loop, steps)
        if not mine and _is_group(run, found, loop):
            after = _step_after(found, loop, steps)
            size = _turns(run, loop)
            if after is not None and size != 1:
                seen.add(id(found.event.node))
                yield _finding(run, found, after, size)
            continue
        divisor = divisor_of_steps(turns, mine)
        # A backward pass that runs in some turns only may be the last of its group.
        if divisor is None or turns.divisor(turns.tests(found.around, found.event)) is not None:
            continue
        seen.add(id(found.event.node))
        size = size_of_group(run, divisor)
        if size != 1 or not isinstance(divisor, Const):
            yield _finding(run, found, mine[0], size)


def _is_group(run: RunQuery, found: Happening, loop: Loop) -> bool:
    """Return whether a loop goes through the micro batches of one step: by a count, or the parts of a batch."""
    if not isinstance(loop.node, ast.For) or found.event.lanes != run.machine.worlds.full:
        return False
    over = loop.node.iter
    is_cut = isinstance(over, ast.Call) and getattr(over.func, "attr", "") in ("chunk", "split", "tensor_split")
    runs = (h for h in run.occurrences("ddp-forward", "forward") if any(node is loop for node in h.around))
    return (loop.counts or is_cut) and any(runs)


def _step_after(found: Happening, loop: Loop, steps: list[Happening]) -> Happening | None:
    """Return the step that comes once after all turns of a loop, in the turn of the loop around it."""
    outer = next((n for n in reversed(found.around[: found.around.index(loop)]) if isinstance(n, Loop)), None)
    for step in steps:
        loops = [node for node in step.around if isinstance(node, Loop)]
        if step.entry is found.entry and outer is not None and loops and loops[-1] is outer:
            return step
    return None


def _turns(run: RunQuery, loop: Loop) -> int | None:
    """Return how many turns a loop has, by the code or by the default of an option."""
    items = loop.subject.single if loop.subject is not None else None
    if isinstance(items, Tuple):
        return len(items.items)
    over = loop.node.iter if isinstance(loop.node, ast.For) else None
    counted = over.args[-1] if isinstance(over, ast.Call) and over.args else None
    word = getattr(counted, "attr", "") or getattr(counted, "id", "")
    known = {
        value.constants[0]
        for key, value in run.machine.defaults.items()
        if isinstance(key, tuple) and key[-1] == word and value.constants is not None and len(value.constants) == 1
    }
    number = known.pop() if len(known) == 1 else None
    return number if type(number) is int else None


def _is_other(run: RunQuery) -> bool:
    """Return whether an Accelerator may wrap models by something else than DDP."""
    made = [h.event for h in run.happenings("starts-group") if h.event.api == ACCELERATOR]
    return any(event.open or set(PLUGINS) & set(event.arguments) for event in made)


def _finding(run: RunQuery, found: Happening, step: Happening, size: int | None) -> Finding:
    event = found.event
    is_sure = size is not None and size > 1
    times = f"{size} times for each step" if is_sure else "in each micro batch of a step"
    return run.finding(
        META,
        event.module,
        event.node,
        f"the gradients of all ranks are reduced here {times}, where once is enough: `no_sync` is missing",
        hint="Run all micro batches but the last of a step inside `no_sync()`, forward pass included",
        related=(run.location(step.event.module, step.event.node, "the step, in some iterations only"),),
        severity=None if is_sure else Severity.INFO,
        facts={"gas": size, "accelerate": event.api.startswith(ACCELERATOR)},
    )


_DDP = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(args, model, optimizer, loader):
    for step, (x, y) in enumerate(loader):
        %s
        if %s:
            optimizer.step()
            optimizer.zero_grad()


def main(loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulation", type=int, default=%s)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    train(args, model, torch.optim.SGD(model.parameters(), lr=0.1), loader)


if __name__ == "__main__":
    main(torch.load("loader.pt"))
"""
_INNER = (
    _DDP.partition("    for step,")[0]
    + """\
    batches = iter(loader)
    for step in range(1000):
        for micro in range(%s):
            model(next(batches)).mean().backward()
            %s
        optimizer.step()
        optimizer.zero_grad()


def main"""
    + _DDP.partition("def main")[2].replace("%s", "8")
)
_LOSS = "(model(x) - y).square().mean().backward()"
_EVERY = "(step + 1) % args.accumulation == 0"
_LOCAL = """\
if (step + 1) % args.accumulation:
            with model.no_sync():
                (model(x) - y).square().mean().backward()
        else:
            (model(x) - y).square().mean().backward()"""
_ACCELERATE = """\
import torch
from accelerate import Accelerator

ACCUMULATION = %s


def epoch(accelerator, model, optimizer, loader):
    for number, batch in enumerate(loader):
        loss = model(batch).mean() / ACCUMULATION
        accelerator.backward(loss)
        is_last = number %% ACCUMULATION == ACCUMULATION - 1 or number + 1 == len(loader)
        if is_last:
            optimizer.step()
            optimizer.zero_grad()


def main(loader):
    accelerator = Accelerator(%s)
    model = torch.nn.Linear(4, 1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    epoch(accelerator, model, optimizer, loader)


main(torch.utils.data.DataLoader(torch.load("data.pt")))
"""

EXAMPLES = (
    bad("an option with a default", {"train.py": _DDP % (_LOSS, _EVERY, "8")}, at="train.py:10 warning"),
    bad("a number in the code", {"train.py": _DDP % (_LOSS, "step % 4 == 3", "8")}, at="train.py:10 warning"),
    bad("none by default", {"train.py": _DDP % (_LOSS, _EVERY, "1")}, at="train.py:10 info"),
    bad("a model that accelerate prepares", {"train.py": _ACCELERATE % ("16", "")}, at="train.py:10 warning"),
    bad(
        "a loop over the micro batches of a step",
        {"train.py": _INNER % ("4", "print(micro)")},
        at="train.py:12 warning",
    ),
    bad(
        "as many as an option says",
        {"train.py": _INNER % ("args.accumulation", "print(micro)")},
        at="train.py:12 warning",
    ),
    good(
        "a step for each of them", {"train.py": _INNER % ("4", "optimizer.step()\n            optimizer.zero_grad()")}
    ),
    good("the reduction is off in between", {"train.py": _DDP % (_LOCAL, _EVERY, "8")}),
    good("a step in every turn", {"train.py": _DDP % (_LOSS, "step >= 0", "8")}),
    good("a group of one", {"train.py": _ACCELERATE % ("1", "")}),
    good("one process", {"train.py": _DDP % (_LOSS, _EVERY, "8")}, world_size=1),
)
