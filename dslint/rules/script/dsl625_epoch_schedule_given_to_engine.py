"""A schedule that counts epochs is handed to `deepspeed.initialize`, whose engine steps it at every update.

**What.** The `lr_scheduler` that `deepspeed.initialize` gets counts epochs: its length comes from the number of epochs,
its milestones lie within them, or it decays exponentially by a factor that a schedule over updates never has (below
0.995). The engine steps in a loop over batches inside a loop over epochs.

**Why it hurts.** `engine.step()` steps every schedule that the engine was given. What should happen in the course of
all epochs is over after that many updates, within the first epoch: a decay of 0.95 leaves a millionth of the learning
rate after 270 updates, and a cosine rises and falls every few batches. Nothing fails.

**Fix.** Do not hand the schedule to `deepspeed.initialize`, and step it at the end of each epoch. Or count updates:
multiply its numbers by the steps of an epoch.

**When it stays quiet.** A length of a loader, or steps, take part in the numbers; the engine steps in no loop over
epochs; the numbers or the schedule are not known.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8: a schedule that halves the rate after every second epoch has halved it
eight times after four epochs of four updates, and twice when the script steps it. `_take_model_step` in
deepspeed/runtime/engine.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.queries.derived import Derived, Piece
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.schedules import OPTIMIZERS, OTHERS, is_length

META = RuleMeta(
    code="DSL625",
    name="epoch-schedule-given-to-engine",
    kind="script",
    severity=Severity.WARNING,
    summary="a schedule that counts epochs is given to DeepSpeed, whose engine steps it at every update",
    markers=(r"deepspeed", r"lr_scheduler|[Ss]chedule"),
    references=(
        "https://github.com/lucidrains/DALLE-pytorch/issues/278",
        "https://deepspeed.readthedocs.io/en/latest/schedulers.html",
    ),
    depends_on_run=True,
)
_TORCH = "torch.optim.lr_scheduler."
_EPOCHS = re.compile(r"epoch", re.I)
_UPDATES = re.compile(r"step(?!_size)|iter(?!s$)|update|batch|len(?:gth)?_|per_epoch", re.I)
_GENTLE = 0.995


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each schedule of epochs that an engine gets which steps once a batch."""
    made = [f.event for f in run.happenings("makes-engine") if "lr_scheduler" in f.event.arguments]
    if not made or not _steps_by_batch(run):
        return
    derived = Derived(run.machine.program.modules(), (tree for _, tree in run.trees()), OTHERS)
    for event in made:
        given = event.arguments["lr_scheduler"]
        makers = [run.makers.get(atom) for atom in instances(given)]
        if len(makers) != 1 or len(given.atoms) != 1 or event.may:
            continue
        maker = makers[0]
        why = _why(run, derived, maker) if maker is not None and maker.api.startswith(_TORCH) else ""
        if maker is not None and why:
            yield run.finding(
                META,
                event.module,
                event.nodes.get("lr_scheduler", event.node),
                f"`engine.step()` steps this schedule at every update, but {why}: it ends within the first epoch",
                hint="Keep it from `deepspeed.initialize` and step it once per epoch, or let it count updates",
                related=(run.location(maker.module, maker.node, "the schedule"),),
                facts={"schedule": maker.api.removeprefix(_TORCH)},
            )


def _steps_by_batch(run: RunQuery) -> bool:
    """Return whether every step of an engine stands in a loop over items inside another loop."""
    steps = [found for found in run.occurrences("engine-step") if "deepspeed" in found.event.api.lower()]
    for found in steps:
        loops = [node for node in found.around if isinstance(node, Loop)]
        if len(loops) < 2 or not loops[-1].items:
            return False
    return bool(steps)


def _why(run: RunQuery, derived: Derived, maker: Event) -> str:
    """Return how the numbers of a schedule show that they count epochs; empty where nothing does."""
    if maker.open:
        return ""
    if maker.api == f"{_TORCH}ExponentialLR":
        factor = _number(run, maker, "gamma")
        return f"it multiplies the learning rate by {factor:g}" if 0 < factor < _GENTLE else ""
    numbers = [node for name, node in maker.nodes.items() if not OPTIMIZERS.search(name) and name != "gamma"]
    pieces = derived.of(maker.module, numbers)
    return "it counts epochs" if pieces and _counts_epochs(pieces) else ""


def _number(run: RunQuery, maker: Event, name: str) -> float:
    """Return a number that is passed, or the default of the option that it is; 0 where nobody knows."""
    value = maker.arguments.get(name)
    if value is None:
        return 0.0
    default = run.machine.defaults.get(value.number) if isinstance(value.number, tuple) else None
    known = value.constants or (default.constants if default is not None else None) or ()
    return float(known[0]) if len(known) == 1 and isinstance(known[0], int | float) else 0.0


def _counts_epochs(pieces: list[Piece]) -> bool:
    """Return whether the words of the code speak of epochs, and of nothing that counts updates."""
    words: set[str] = set()
    for _, piece in pieces:
        for node in ast.walk(piece):
            if is_length(node):
                return False
            words.add(str(getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "arg", "") or ""))
    return any(_EPOCHS.search(w) for w in words) and not any(_UPDATES.search(w) for w in words - {"add_argument"})


_TRAIN = """\
import argparse

import deepspeed
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR

CONFIG = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 1}}


def schedule_of(optimizer, args, loader):
    return %s


def main(model, loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--decay", type=float, default=%s)
    args = parser.parse_args()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=args.decay)
    schedule = schedule_of(optimizer, args, loader)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer%s, config=CONFIG)
    for epoch in range(args.epochs):
        for batch in loader:
            loss = engine(batch).mean()
            engine.backward(loss)
            engine.step()
%s

main(torch.nn.Linear(4, 1), [torch.ones(4)])
"""
_COSINE, _DECAY = "CosineAnnealingLR(optimizer, T_max=args.epochs)", "ExponentialLR(optimizer, gamma=args.decay)"
_GIVEN = ", lr_scheduler=schedule"
_CLASS = """\
import deepspeed
from schedules import build


class Trainer:
    def __init__(self, model, optimizer, config):
        self.epochs = config.epochs
        self.engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, lr_scheduler=build(optimizer, config), config=config.deepspeed
        )

    def fit(self, loader):
        for epoch in range(self.epochs):
            self.epoch(loader)

    def epoch(self, loader):
        for batch in loader:
            self.engine.backward(self.engine(batch).mean())
            self.engine.step()
"""
_BUILD = """\
from torch.optim.lr_scheduler import MultiStepLR


def build(optimizer, config):
    return MultiStepLR(optimizer, milestones=[%s])
"""

EXAMPLES = (
    bad("A cosine over the epochs", {"train.py": _TRAIN % (_COSINE, "0.95", _GIVEN, "")}, "train.py:21"),
    bad("A decay of each epoch", {"train.py": _TRAIN % (_DECAY, "0.95", _GIVEN, "")}, "train.py:21"),
    bad(
        "Milestones in another file",
        {"schedules.py": _BUILD % "config.epochs // 2, 3 * config.epochs // 4", "train.py": _CLASS},
        "train.py:9",
    ),
    good("The script steps it", {"train.py": _TRAIN % (_COSINE, "0.95", "", "        schedule.step()\n")}),
    good(
        "Updates are counted",
        {"train.py": _TRAIN % (_COSINE.replace("epochs", "epochs * len(loader)"), "0.95", _GIVEN, "")},
    ),
    good("A gentle decay", {"train.py": _TRAIN % (_DECAY, "0.9999", _GIVEN, "")}),
    good("Milestones of updates", {"schedules.py": _BUILD % "config.warmup, config.total_steps", "train.py": _CLASS}),
)
