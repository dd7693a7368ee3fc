"""A learning rate schedule that counts steps of the optimizer is stepped in each of the micro batches of a step.

**What.** A step of the optimizer takes several micro batches: in a block of `accelerator.accumulate`, or under
`if (i + 1) % accumulation == 0`. `scheduler.step()` runs in each of them, and the numbers of the schedule count steps
of the optimizer: `len(loader) // accumulation * epochs`, or the limit up to which the loop counts its steps.

**Why it hurts.** With 4 micro batches a step the warmup is over after a fourth of its steps, and the schedule is at
its end after a fourth of the run. The rest trains with a learning rate of zero, or with one that climbs again.
Nothing fails. In a block of accelerate this happens to a schedule that was not handed to `prepare`, or with
`step_scheduler_with_optimizer=False`: `optimizer.step()` does nothing in the other turns, `scheduler.step()` does.

**Fix.** Step the schedule where the optimizer steps: under `if accelerator.sync_gradients:`, or under the same test.

**When it stays quiet.** A schedule whose numbers count micro batches, or of which nobody knows what they count; a step
under a test that may ask for the turn; a schedule that accelerate steps with the optimizer; one micro batch; DeepSpeed.
A note where the number of micro batches is 1 by default.

**Evidence.** Two gloo ranks, accelerate 1.15, four micro batches: a linear schedule over 4 steps is at its end after
the first one. `AcceleratedScheduler.step` in accelerate/scheduler.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Alt, Context, Event, Loop
from dslint.python.queries.asked import in_words
from dslint.python.queries.derived import Derived
from dslint.python.queries.turns import Turns
from dslint.python.values import Const, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import SCHEDULE, maker_of
from dslint.rules.training.accumulating import steps_of
from dslint.rules.training.microbatches import STEPS, divisor_of_steps, inside, size_of_group
from dslint.rules.training.plateaus import instances, wrapped_by
from dslint.rules.training.schedules import number_code
from dslint.rules.training.updatelengths import counts_updates

META = RuleMeta(
    code="DSL775",
    name="schedule-stepped-in-each-micro-batch",
    kind="script",
    severity=Severity.WARNING,
    summary="a schedule counts steps of the optimizer and is stepped in each micro batch: it ends too early",
    markers=(r"sched", r"accum|%"),
    references=(
        "https://github.com/starVLA/starVLA/pull/210",
        "AcceleratedScheduler.step in accelerate/scheduler.py",
    ),
    depends_on_run=True,
)
_OF_TURN = re.compile(r"step|sync|accum|%|update", re.I)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each step of a schedule that runs in turns in which the optimizer does not step."""
    if run.stage is not None or not run.has("accumulate", *STEPS):
        return
    alone = _stepped_alone(run)
    derived: Derived | None = None
    seen: set[int] = set()
    for found in run.occurrences("scheduler-step"):
        event, loop = found.event, _innermost(found)
        makers = [alone.get(atom) for atom in instances(event.receiver)]
        if loop is None or event.may or event.open or event.arguments or None in makers or not makers:
            continue
        grouped = _in_block(run, loop) or _by_turns(run, loop)
        if grouped is None or id(event.node) in seen or _asks_for_turn(run, found, loop):
            continue
        derived = derived or number_code(run)
        loops = [node for node in found.around if isinstance(node, Loop)]
        why = [counts_updates(derived, maker, loops, grouped[0]) for maker in makers if maker is not None]
        if all(why):
            seen.add(id(event.node))
            yield _finding(run, found, makers[0], grouped, why[0])


def _stepped_alone(run: RunQuery) -> dict[Instance, Event]:
    """Return the calls that made the schedules which step whenever they are told to."""
    prepared: dict[Instance, Instance | None] = {}
    for found in run.occurrences("prepares"):
        maker = maker_of(run, found.event.receiver)
        told = maker.arguments.get("step_scheduler_with_optimizer") if maker is not None else None
        is_alone = told is not None and told.constants == (False,)
        for inner, outer in wrapped_by(found.event):
            given = inner.single
            for atom in instances(outer):
                if atom.cls == SCHEDULE:
                    prepared[atom] = given if is_alone and isinstance(given, Instance) else None
    made = {atom: maker for atom, maker in run.makers.items() if "makes-scheduler" in maker.tags and not maker.open}
    owned = {atom for h in run.occurrences("makes-engine") for v in h.event.arguments.values() for atom in instances(v)}
    plain = {atom: maker for atom, maker in made.items() if atom not in prepared and atom not in owned}
    wrapped = {outer: made[inner] for outer, inner in prepared.items() if inner in made}
    return {**plain, **wrapped}


def _innermost(found: Happening) -> Loop | None:
    return next((node for node in reversed(found.around) if isinstance(node, Loop)), None)


_Grouped = tuple[int | None, bool, tuple[Location, ...]]


def _in_block(run: RunQuery, loop: Loop) -> _Grouped | None:
    """Return the micro batches of a step where the turns of a loop are blocks of `accumulate` with a step inside."""
    opened = {atom: h.event for h in run.occurrences("accumulate") for atom in instances(h.event.result)}
    for step in inside(loop, run.occurrences(*STEPS)) if opened else ():
        block = next((n for n in step.around if isinstance(n, Context) and n.manager.atoms & opened.keys()), None)
        made = next((opened[atom] for atom in instances(block.manager) if atom in opened), None) if block else None
        if made is not None and _innermost(step) is loop:
            steps = steps_of(run, made)
            if steps is not None:
                return steps.known, (steps.known or 0) > 1, (run.location(made.module, made.node, "a part of a step"),)
    return None


def _by_turns(run: RunQuery, loop: Loop) -> _Grouped | None:
    """Return the micro batches of a step where a test by the number of the turn leads to it."""
    mine = inside(loop, run.occurrences(*STEPS))
    divisor = divisor_of_steps(Turns(run.machine, loop), mine)
    size = size_of_group(run, divisor)
    if divisor is None or (size == 1 and isinstance(divisor, Const)):
        return None
    step = mine[0].event
    return size, (size or 0) > 1, (run.location(step.module, step.node, "the step, in some iterations only"),)


def _asks_for_turn(run: RunQuery, found: Happening, loop: Loop) -> bool:
    """Return whether a test between a loop and a step may leave out turns."""
    turns = Turns(run.machine, loop)
    tests = turns.tests(found.around, found.event)
    if turns.divisor(tests) is not None or any(test.leaves for test in tests):
        return True
    around = found.around[found.around.index(loop) :]
    return any(_OF_TURN.search(in_words(node)) for node in around if isinstance(node, Alt))


def _finding(run: RunQuery, found: Happening, maker: Event | None, grouped: _Grouped, why: str) -> Finding:
    size, is_sure, places = grouped
    event = found.event
    assert maker is not None
    return run.finding(
        META,
        event.module,
        event.node,
        "The schedule steps in each micro batch, but counts steps of the optimizer: it ends"
        + (f" after 1/{size} of the run" if is_sure else " too early"),
        hint="Step it where the optimizer steps: `if accelerator.sync_gradients:`, or under the same test",
        related=(run.location(maker.module, maker.node, why), *places),
        severity=None if is_sure or size is None else Severity.INFO,
        facts={"gas": size},
    )


_TRAIN = """\
import math

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import get_cosine_schedule_with_warmup


def main(data, args):
    accelerator = Accelerator(gradient_accumulation_steps=%(count)s%(more)s)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(data, batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    total = %(length)s
    schedule = get_cosine_schedule_with_warmup(optimizer, 100, num_training_steps=total)
    %(late)s
    done = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
                optimizer.step()
%(inside)s                optimizer.zero_grad()
%(after)s            if accelerator.sync_gradients:
                done += 1
            if done >= args.max_steps:
                return
"""
_DIVIDED = "args.epochs * math.ceil(len(loader) / args.accumulation)"
_INSIDE = "                schedule.step()\n"


def _train(length: str = _DIVIDED, count: str = "4", more: str = "", late: str = "pass", inside: str = _INSIDE,
           after: str = "") -> str:  # fmt: skip
    return _TRAIN % {"length": length, "count": count, "more": more, "late": late, "inside": inside, "after": after}


_PREPARED = "schedule = accelerator.prepare(schedule)"
_ALONE = ", step_scheduler_with_optimizer=False"
_GUARDED = "                if accelerator.sync_gradients:\n                    schedule.step()\n"
_FLAG = "                flag = accelerator.sync_gradients\n" + _GUARDED.replace("accelerator.sync_gradients", "flag")
_HAND = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR


class Fitter:
    def __init__(self, args, loader):
        self.args, self.loader = args, loader
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        updates = len(loader) // args.accumulation
        self.schedule = LinearLR(self.optimizer, 1.0, 0.1, total_iters=%s)

    def fit(self):
        for step, (x, y) in enumerate(self.loader):
            loss = (self.model(x) - y).square().mean() / self.args.accumulation
            loss.backward()
            if (step + 1) %% self.args.accumulation == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
%s

def main(loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulation", type=int, default=%s)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Fitter(args, loader).fit()


if __name__ == "__main__":
    main(torch.load("loader.pt"))
"""
_EACH, _WITH = "            self.schedule.step()\n", "                self.schedule.step()\n"

EXAMPLES = (
    bad("in the block", {"train.py": _train()}, at="train.py:24 warning"),
    bad("after the block", {"train.py": _train(inside="", after="            schedule.step()\n")},
        at="train.py:25 warning"),
    bad("the limit of the steps", {"train.py": _train("args.max_steps")}, at="train.py:24 warning"),
    bad("divided by the number itself", {"train.py": _train("len(loader) // 4")}, at="train.py:24 warning"),
    bad("a number that somebody tells", {"train.py": _train(count="args.accumulation")}, at="train.py:24 warning"),
    bad("prepared, and stepped whenever it is told to", {"train.py": _train(more=_ALONE, late=_PREPARED)},
        at="train.py:24 warning"),
    bad("by hand", {"train.py": _HAND % ("updates", _EACH, "8")}, at="train.py:24 warning"),
    bad("by hand, one by default", {"train.py": _HAND % ("updates", _EACH, "1")}, at="train.py:24 info"),
    good("where the optimizer steps", {"train.py": _train(inside=_GUARDED)}),
    good("the same by a variable", {"train.py": _train(inside=_FLAG)}),
    good("by hand, where the optimizer steps", {"train.py": _HAND % ("updates", _WITH, "8")}, select="DSL775"),
    good("the numbers count micro batches", {
        "all.py": _train("args.epochs * len(loader)"),
        "back.py": _train("args.epochs * (len(loader) // args.accumulation) * args.accumulation"),
        "hand.py": _HAND % ("len(loader)", _EACH, "8")}, select="DSL775"),
    good("accelerate steps it with the optimizer", {"train.py": _train(late=_PREPARED)}, select="DSL775"),
    good("one micro batch", {"train.py": _train(count="1")}),
    good("numbers from elsewhere", {"train.py": _train("args.length")}),
)  # fmt: skip
