"""The length of a prepared schedule is the length of the undivided loader times the number of processes.

**What.** The numbers of a schedule come from `len(loader)` before `accelerator.prepare` has divided the loader, and are
multiplied by `accelerator.num_processes`; then schedule and loader are prepared.

**Why it hurts.** A prepared schedule continues by N steps for each update, and the prepared loader makes 1/N of the
updates: `len(loader)` is right as it is. Multiplied, the schedule lasts N times as long as the run. The warmup is
short of its steps, the learning rate never comes down: on 8 GPUs a cosine ends at 96 % of its height. Nothing fails.

**Fix.** Divide the length by the number of processes before it is counted in epochs, as
`math.ceil(len(loader) / accelerator.num_processes)`, or drop the factor.

**When it stays quiet.** A division by the number of processes takes part; the loader was prepared before the schedule
was made; an option of the command line, with a default, says the length; nobody reads the loader that `prepare` gives
back; the schedule is not prepared, or the Accelerator does not step it once for each process (`split_batches`,
`step_scheduler_with_optimizer=False`, DeepSpeed); one process.

**Evidence.** Two gloo ranks, accelerate 1.15: a linear schedule to zero over `len(loader) * num_processes` steps has
half of the learning rate left when the loader ends.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.derived import Derived, Piece
from dslint.python.source import Module
from dslint.python.values import Const, PerRank
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import LOADER, SCHEDULE, earlier_prepares, prepared_by
from dslint.rules.training.plateaus import PLATEAU, instances, multiplying
from dslint.rules.training.schedules import OPTIMIZERS, is_length, number_code

META = RuleMeta(
    code="DSL628",
    name="schedule-length-times-processes",
    kind="script",
    severity=Severity.WARNING,
    summary="a prepared schedule counts the undivided loader times the number of processes: it never ends",
    markers=(r"accelerat", r"prepare", r"num_processes"),
    references=(
        "https://github.com/huggingface/diffusers/issues/8236",
        "https://github.com/huggingface/diffusers/pull/8312",
    ),
    depends_on_run=True,
)
_PROCESSES = "num_processes"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each schedule that is prepared beside the loader whose length it multiplies."""
    if run.context.is_one_process or run.stage is not None:
        return
    derived: Derived | None = None
    seen: set[int] = set()
    for found in run.happenings("prepares"):
        given = prepared_by(found.event) or []
        schedules = [part.was for part in given if part.cls == SCHEDULE]
        if not schedules or not _divides_now(found) or not multiplying(run, [found.event]) or _is_dropped(found):
            continue
        derived = derived or number_code(run, by_field=True)
        for atom in (atom for value in schedules for atom in instances(value)):
            maker = run.makers.get(atom)
            if maker is None or maker.open or atom.cls == PLATEAU or id(maker.node) in seen:
                continue
            number = next((node for node in _numbers(maker) if _is_multiplied(derived, maker, node)), None)
            if number is not None:
                seen.add(id(maker.node))
                yield _finding(run, found.event, maker, number)


def _divides_now(found: Happening) -> bool:
    """Return whether the call divides a loader, and none was divided before."""
    given = prepared_by(found.event) or []
    has_loader = any(part.cls == LOADER for part in given)
    return has_loader and not any(True for _ in earlier_prepares(found))


def _is_dropped(found: Happening) -> bool:
    """Return whether nobody reads the loader that the call gives back: training runs over the one that it got."""
    module, call = found.event.module, found.event.node
    kinds = [part.cls for part in prepared_by(found.event) or []]
    target = next((n.targets[0] for n in module.nodes_of(ast.Assign) if n.value is call), None)
    read = [n for n in module.nodes_of(ast.Name) if isinstance(n.ctx, ast.Load)]
    if isinstance(target, ast.Name):
        return _is_never_taken(module, [n for n in read if n.id == target.id], kinds)
    return isinstance(target, ast.Tuple) and _is_unread(target, kinds, {n.id for n in read})


def _is_never_taken(module: Module, uses: list[ast.Name], kinds: list[str]) -> bool:
    """Return whether all that is taken of a tuple by number, or by name and read, is none of the loaders in it."""
    taken = {id(n.value): n.slice for n in module.nodes_of(ast.Subscript)}
    unpacked = {id(n.value): n.targets[0] for n in module.nodes_of(ast.Assign)}
    read = {n.id for n in module.nodes_of(ast.Name) if isinstance(n.ctx, ast.Load)}
    for use in uses:
        at, into = taken.get(id(use)), unpacked.get(id(use))
        number = at.value if isinstance(at, ast.Constant) else None
        is_other = isinstance(number, int) and 0 <= number < len(kinds) and kinds[number] != LOADER
        if not is_other and not (isinstance(into, ast.Tuple) and _is_unread(into, kinds, read)):
            return False
    return bool(uses)


def _is_unread(target: ast.Tuple, kinds: list[str], read: set[str]) -> bool:
    if len(target.elts) != len(kinds):
        return False
    kept = [into for into, cls in zip(target.elts, kinds, strict=True) if cls == LOADER]
    return all(isinstance(into, ast.Name) and into.id not in read for into in kept)


def _numbers(maker: Event) -> list[ast.expr]:
    """Return the numbers of a schedule that no command tells."""
    return [node for name, node in maker.nodes.items() if not OPTIMIZERS.search(name) and not _is_told(maker, name)]


def _is_told(maker: Event, name: str) -> bool:
    value = maker.arguments.get(name)
    return value is not None and all(isinstance(atom, Const | PerRank) for atom in value.atoms)


def _is_multiplied(derived: Derived, maker: Event, number: ast.expr) -> bool:
    """Return whether a number is a length times the number of processes, which divides nothing."""
    products: list[tuple[Module, ast.BinOp]] = []
    for module, piece in derived.of(maker.module, [number]) or []:
        products += [(module, n) for n in ast.walk(piece) if isinstance(n, ast.BinOp) and _is_of_processes(n)]
    if not all(isinstance(node.op, ast.Mult) for _, node in products):
        return False
    # A warmup of a fixed number of steps is rightly multiplied.
    return any(_counts_length(derived, module, node) for module, node in products)


def _counts_length(derived: Derived, module: Module, node: ast.expr) -> bool:
    pieces: list[Piece] = derived.of(module, [node]) or []
    return any(is_length(part) for _, piece in pieces for part in ast.walk(piece))


def _is_of_processes(node: ast.BinOp) -> bool:
    """Return whether one side of an operation is the number of processes, or a product with it."""
    sides = [part for side in (node.left, node.right) for part in ast.walk(side)]
    return any(getattr(part, "attr", getattr(part, "id", "")) == _PROCESSES for part in sides)


def _finding(run: RunQuery, prepared: Event, maker: Event, number: ast.expr) -> Finding:
    return run.finding(
        META,
        maker.module,
        number,
        "the loader is counted undivided and multiplied: the schedule lasts N times as long as the run (N processes)",
        hint="Divide the length of the loader by `accelerator.num_processes`, or drop the factor",
        related=(run.location(prepared.module, prepared.node, "loader and schedule are prepared here"),),
        facts={"factor": _PROCESSES},
    )


_TRAIN = """\
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
    updates = math.ceil(%(length)s / args.accumulation)
    total = args.epochs * updates
    schedule = get_scheduler(
        "cosine",
        optimizer=optimizer,
        num_warmup_steps=args.warmup * accelerator.num_processes,
        num_training_steps=total%(factor)s,
    )
    model, optimizer, %(parts)s = accelerator.prepare(model, optimizer, %(parts)s)
    for epoch in range(args.epochs):
        for x, y in loader:
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
"""
_TIMES = " * accelerator.num_processes"


def _train(
    factor: str = _TIMES,
    length: str = "len(loader)",
    early: str = "pass",
    parts: str = "loader, schedule",
    arguments: str = "",
) -> dict[str, str]:
    given = {"factor": factor, "length": length, "early": early, "parts": parts, "arguments": arguments}
    return {"train.py": _TRAIN % given}


_MAIN = """

if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=%s)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--accumulation", type=int, default=1)
    main([], parser.parse_args())
"""


def _optional(default: str) -> dict[str, str]:
    text = _train()["train.py"]
    counted = "    if args.steps is None:\n        args.steps = args.epochs * updates\n"
    text = text.replace("    total = args.epochs * updates\n", counted).replace("=total *", "=args.steps *")
    return {"train.py": text + _MAIN % default}


_CLASS = """\
import torch
from accelerate import Accelerator
from schedules import warmup_cosine
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, data, epochs):
        self.accelerator = Accelerator()
        loader = DataLoader(data, batch_size=4)
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = warmup_cosine(optimizer, epochs * len(loader), self.accelerator)
        self.model, self.optimizer, self.loader, self.schedule = self.accelerator.prepare(
            model, optimizer, loader, schedule
        )


Trainer(torch.nn.Linear(4, 1), [], 3)
"""
_BUILD = """\
from torch.optim.lr_scheduler import CosineAnnealingLR


def warmup_cosine(optimizer, steps, accelerator):
    return CosineAnnealingLR(optimizer, T_max=steps * accelerator.num_processes)
"""

EXAMPLES = (
    bad("Epochs times updates times processes", _train(), "train.py:21"),
    bad(
        "A schedule of diffusers",
        {k: v.replace("from transformers", "from diffusers.optimization") for k, v in _train().items()},
        "train.py:21",
    ),
    bad("In two files", {"schedules.py": _BUILD, "train.py": _CLASS}, "schedules.py:5"),
    good("The undivided length as it is", _train("")),
    good("Divided and multiplied", _train(length="math.ceil(len(loader) / accelerator.num_processes)")),
    good("The loader is divided before", _train(early="loader = accelerator.prepare(loader)", parts="schedule")),
    good(
        "The length of a run that is told",
        {k: v.replace("args.epochs * updates", "args.steps") for k, v in _train().items()},
    ),
    good(
        "Only the warmup is multiplied, and the decay takes the rest",
        {
            k: v.replace("    schedule = get", "    warm = args.warmup * accelerator.num_processes\n    schedule = get")
            .replace("num_warmup_steps=args.warmup * accelerator.num_processes", "num_warmup_steps=warm")
            .replace("num_training_steps=total", "num_training_steps=total - warm")
            for k, v in _train("").items()
        },
    ),
    bad("The option for the length is empty by default", _optional("None"), "train.py:22"),
    good("The option for the length has a default", _optional("5000")),
    good(
        "Training runs over the loader that nobody divided",
        {
            k: v.replace("optimizer, loader, schedule = acc", "optimizer, _, schedule = acc")
            for k, v in _train().items()
        },
    ),
    good("One process", _train(), world_size=1),
)
