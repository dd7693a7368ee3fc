"""The length of a loader is asked before it is divided among the processes, and decides how long the run lasts.

**What.** `len(loader)` before `accelerator.prepare(loader)` (or `fabric.setup_dataloaders(loader)`) goes into the
number of epochs or turns of the training loop, or into the steps of a schedule that is not prepared, and nothing
computes the number again afterwards.

**Why it hurts.** Before the call the loader counts the batches of the whole data set, afterwards those of one process.
Epochs that follow from a number of steps come out N times too few on N processes: the run ends after 1/N of the steps.
A loop over `epochs * len(loader)` turns is N times too long. A schedule of that length is left after its first part,
and the learning rate never comes down. Nothing fails.

**Fix.** Prepare the loader first and ask for its length then, or divide by the number of processes.

**When it stays quiet.** The number of processes takes part in the number; the length of the prepared loader does, as in
scripts that compute the number again; schedules that are prepared (DSL284, DSL628); `split_batches=True` and
Accelerators whose arguments nobody knows; one process.

**Evidence.** Two gloo ranks, accelerate 1.15: of 8 steps that are requested, a loop whose epochs count the undivided
loader makes 4.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.queries.derived import Piece
from dslint.python.source import Module
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import splits_batches
from dslint.rules.training.plateaus import instances
from dslint.rules.training.schedules import OPTIMIZERS, knows_world, number_code

META = RuleMeta(
    code="DSL675",
    name="undivided-length-rules-the-loop",
    kind="script",
    severity=Severity.WARNING,
    summary="the loader is counted before it is divided among the processes, and that decides how long the run lasts",
    markers=(r"accelerat|lightning|fabric", r"prepare|setup_dataloaders", r"\blen\("),
    references=("https://github.com/huggingface/transformers/pull/17046",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each length of an undivided loader that decides about a training loop or a schedule."""
    if run.context.is_one_process or not run.has("prepares") or not run.has("asks-length"):
        return
    lengths = _Lengths(run)
    if not lengths.undivided:
        return
    derived = number_code(run, by_field=True)
    seen: set[int] = set()
    for number in (*_turns(run), *_schedules(run)):
        pieces = derived.of(number.module, number.nodes)
        length = lengths.among(pieces or [])
        if length is not None and id(length.node) not in seen:
            seen.add(id(length.node))
            yield _finding(run, length, lengths.undivided[id(length.node)], number)


class _Lengths:
    """The places that ask how many batches a loader has: those before it is divided, and all others."""

    def __init__(self, run: RunQuery) -> None:
        self.undivided: dict[int, Event] = {}
        self.asked: dict[int, Event] = {}
        divided = _divided(run)
        for found in run.occurrences("asks-length"):
            event = found.event
            atoms = instances(event.receiver)
            self.asked[id(event.node)] = event
            if atoms and all(atom in divided for atom in atoms):
                self.undivided.setdefault(id(event.node), divided[atoms[0]])

    def among(self, pieces: list[Piece]) -> Event | None:
        """Return the length in some code when all lengths of loaders in it are of undivided ones."""
        if any(knows_world(node) for _, node in pieces):
            return None
        calls = [inner for _, node in pieces for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        lengths = [id(call) for call in calls if ast.unparse(call.func) == "len"]
        found = [self.asked[at] for at in lengths if at in self.asked]
        return found[0] if found and len(found) == len(lengths) and self._all(found) else None

    def _all(self, found: list[Event]) -> bool:
        return all(id(event.node) in self.undivided for event in found)


@dataclass(frozen=True, slots=True)
class _Number:
    """What says how long something lasts: its code, and the place with `label`."""

    module: Module
    nodes: list[ast.expr]
    place: ast.AST
    label: str


def _divided(run: RunQuery) -> dict[Instance, Event]:
    """Return the loaders that a call certainly divides among the processes."""
    if splits_batches(run):
        return {}
    found: dict[Instance, Event] = {}
    for happening in run.occurrences("prepares"):
        for value in happening.event.arguments.values() if not happening.event.may else ():
            for atom in instances(value):
                if isinstance(atom.cls, str) and atom.cls and run.machine.libraries.is_class(atom.cls, "loader"):
                    found.setdefault(atom, happening.event)
    return found


def _turns(run: RunQuery) -> Iterator[_Number]:
    """Yield how many turns the loops take in which the script trains; loops over batches are none of them."""
    for step in run.happenings("backward", "engine-backward"):
        for loop in (node for node in step.around if isinstance(node, Loop) and not node.is_frame):
            node = loop.node
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and "range" in ast.unparse(node.iter.func):
                yield _Number(loop.module, node.iter.args, node, "the loop that it decides about")
            elif isinstance(node, ast.While):
                yield _Number(loop.module, [node.test], node, "the loop that it decides about")


def _schedules(run: RunQuery) -> Iterator[_Number]:
    """Yield the numbers of schedules that a script steps and does not prepare."""
    given = (value for h in run.occurrences("prepares") for value in h.event.arguments.values())
    prepared = {atom for value in given for atom in instances(value)}
    stepped = {atom for h in run.occurrences("scheduler-step") for atom in instances(h.event.receiver)}
    for found in run.happenings("makes-scheduler"):
        event, made = found.event, instances(found.event.result)
        if event.may or event.open or not made or any(atom in prepared or atom not in stepped for atom in made):
            continue
        numbers = [node for name, node in event.nodes.items() if not OPTIMIZERS.search(name)]
        yield _Number(event.module, numbers, event.node, "the schedule that it decides about")


def _finding(run: RunQuery, length: Event, divides: Event, number: _Number) -> Finding:
    text = run.text(length.module, length.node, 40)
    return run.finding(
        META,
        length.module,
        length.node,
        f"`{text}` counts the batches of all processes, but the loader is divided later: the run has a wrong length",
        hint="Ask for the length after the loader is prepared, or divide it by the number of processes",
        related=(
            run.location(divides.module, divides.node, "here each process gets its share"),
            run.location(number.module, number.place, number.label),
        ),
        facts={"counts": "loader"},
    )


_MAIN = """\
import math

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import get_scheduler


def main(data, args):
    accelerator = Accelerator(%(arguments)s)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(data, batch_size=4, shuffle=True)
    %(early)s
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    %(late)s
    for epoch in range(args.epochs):
        for x, y in loader:
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            %(step)s
"""
_EPOCHS = "args.epochs = math.ceil(args.max_steps / math.ceil(len(loader) / args.accumulation))"
_SCHEDULE = "schedule = get_scheduler('cosine', optimizer.optimizer, 0, args.epochs * steps)"


def _main(early: str = "pass", late: str = "pass", step: str = "pass", arguments: str = "") -> dict[str, str]:
    return {"train.py": _MAIN % {"early": early, "late": late, "step": step, "arguments": arguments}}


_CLASS = """\
from accelerate import Accelerator
from torch.utils.data import DataLoader

from lengths import turns


class Trainer:
    def __init__(self, model, optimizer, data, epochs):
        self.accelerator = Accelerator(gradient_accumulation_steps=2)
        self.loader = DataLoader(data, batch_size=4)
        self.total = turns(self.loader, epochs)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, self.loader)

    def train(self):
        step = 0
        while step < self.total:
            for batch in self.loader:
                self.accelerator.backward(self.model(batch).mean())
                self.optimizer.step()
                step += 1


def main(model, optimizer, data):
    Trainer(model, optimizer, data, 3).train()
"""
_LENGTHS = "def turns(loader, epochs):\n    return epochs * len(loader)%s\n"
_FABRIC = """\
from lightning.fabric import Fabric
from torch.utils.data import DataLoader


def main(model, optimizer, data, max_steps):
    fabric = Fabric(devices=4)
    fabric.launch()
    model, optimizer = fabric.setup(model, optimizer)
    loader = DataLoader(data, batch_size=8)
    %s
    loader = fabric.setup_dataloaders(loader)
    %s
    for epoch in range(epochs):
        for batch in loader:
            fabric.backward(model(batch).mean())
            optimizer.step()
"""

EXAMPLES = (
    bad("The number of epochs follows from a number of steps", _main(_EPOCHS), "train.py:14"),
    bad(
        "A schedule that is not prepared",
        _main("steps = len(loader)", _SCHEDULE, "schedule.step()"),
        "train.py:14",
    ),
    bad("A class, and a function of another file", {"lengths.py": _LENGTHS % "", "train.py": _CLASS}, "lengths.py:2"),
    bad("Fabric", {"train.py": _FABRIC % ("epochs = max_steps // len(loader) + 1", "pass")}, "train.py:10"),
    good("Asked afterwards", _main(late=_EPOCHS)),
    good("Computed again afterwards", _main(_EPOCHS, _EPOCHS)),
    good(
        "The length goes into what is printed",
        _main("print(len(loader))", "steps = args.steps\n    " + _SCHEDULE, "schedule.step()"),
    ),
    good(
        "Divided by the number of processes",
        _main(_EPOCHS.replace("len(loader)", "len(loader) / accelerator.num_processes")),
    ),
    good("Batches are split", _main(_EPOCHS, arguments="split_batches=True")),
    good(
        "A prepared schedule",
        _main("steps = len(loader)", _SCHEDULE + "\n    schedule = accelerator.prepare(schedule)"),
    ),
    good("Multiplied in the other file", {"lengths.py": _LENGTHS % " // world_size()", "train.py": _CLASS}),
    good("Fabric afterwards", {"train.py": _FABRIC % ("pass", "epochs = max_steps // len(loader) + 1")}),
    good("One process", _main(_EPOCHS), world_size=1),
)
