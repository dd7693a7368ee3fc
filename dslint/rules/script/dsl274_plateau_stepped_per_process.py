"""`accelerator.prepare` wraps a `ReduceLROnPlateau`, and each of its steps runs once for each process.

**What.** A `ReduceLROnPlateau` is handed to `accelerator.prepare`, and the Accelerator has the default
`step_scheduler_with_optimizer=True`.

**Why it hurts.** `AcceleratedScheduler.step` expects a schedule that counts batches, and calls it once for each
process. Here that repeats the same metric: the first call sees the epoch, all others see no improvement. On 8 GPUs an
epoch without improvement counts 8 times, and an epoch with improvement counts as 7 without. With `patience=5` the
learning rate falls in every epoch. With gradient accumulation a step may be left out instead.

**Fix.** `Accelerator(step_scheduler_with_optimizer=False)`, or do not hand this schedule to `prepare`.

**When it stays quiet.** An Accelerator whose arguments are not all known; `split_batches=True`; a
`dataloader_config`, which may split batches; DeepSpeed; runs of one process; a schedule that nothing steps.

**Evidence.** Two gloo ranks, accelerate 1.15: with `patience=3` and a constant metric the learning rate falls after 3
epochs instead of 5. `AcceleratedScheduler.step` in accelerate/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import multiplying, plateau_steps

META = RuleMeta(
    code="DSL274",
    name="plateau-stepped-per-process",
    kind="script",
    severity=Severity.WARNING,
    summary="accelerate steps a prepared ReduceLROnPlateau once for each process, which uses up its patience",
    markers=(r"torch|accelerat|deepspeed|lightning",),
    references=(
        "https://github.com/huggingface/accelerate/issues/3797",
        "AcceleratedScheduler.step in accelerate/scheduler.py",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each step of a schedule that an Accelerator with its defaults has prepared."""
    if run.context.is_one_process or run.stage is not None:
        return
    for step in plateau_steps(run):
        makes = multiplying(run, step.prepared)
        if not makes:
            continue
        places = [run.location(e.module, e.node, "wraps the schedule") for e in step.prepared]
        places += [run.location(m.module, m.node, "steps schedules with the optimizer") for m in makes]
        yield run.finding(
            META,
            step.event.module,
            step.event.node,
            "Accelerate runs this step once per process, so the patience of `ReduceLROnPlateau` is soon used up",
            hint="Pass `step_scheduler_with_optimizer=False` to the Accelerator, or keep the schedule out of `prepare`",
            related=tuple(dict.fromkeys(places)),
        )


_MAIN = """\
import torch
from accelerate import Accelerator
from torch.optim.lr_scheduler import ReduceLROnPlateau


def main(loader):
    accelerator = Accelerator(%s)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = ReduceLROnPlateau(optimizer, patience=2)
    model, optimizer, loader%s = accelerator.prepare(model, optimizer, loader%s)
    for _ in range(10):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step(accelerator.gather(loss.detach()).mean())
"""
_PREPARED = (", scheduler", ", scheduler")
_ALONE = "step_scheduler_with_optimizer=False"
_COUNTING = (
    (_MAIN % ("", *_PREPARED))
    .replace("ReduceLROnPlateau(optimizer, patience=2)", "LinearLR(optimizer)")
    .replace("ReduceLROnPlateau", "LinearLR")
    .replace("accelerator.gather(loss.detach()).mean()", "")
)
_OPTIMIZERS = """\
import torch


def build(model, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    return optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min")
"""
_TRAINER = """\
import torch
from accelerate import Accelerator

from optimizers import build


class Trainer:
    def __init__(self, model, loader, args):
        self.accelerator = Accelerator(mixed_precision="bf16")
        optimizer, schedule = build(model, args)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.schedule = self.accelerator.prepare_scheduler(schedule)

    def epoch(self):
        for x, y in self.loader:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.schedule.step(self.accelerator.gather(loss.detach()).mean())
"""

EXAMPLES = (
    bad("an Accelerator with its defaults", {"train.py": _MAIN % ("", *_PREPARED)}, "train.py:18"),
    bad(
        "the schedule is made in another file",
        {"optimizers.py": _OPTIMIZERS, "train.py": _TRAINER},
        "train.py:20",
    ),
    good("the Accelerator leaves schedules alone", {"train.py": _MAIN % (_ALONE, *_PREPARED)}),
    good("the schedule is not prepared", {"train.py": _MAIN % ("", "", "")}),
    good("a schedule that counts batches", {"train.py": _COUNTING}),
    good("batches are split", {"train.py": _MAIN % ("split_batches=True", *_PREPARED)}),
    good("one process", {"train.py": _MAIN % ("", *_PREPARED)}, world_size=1),
)
