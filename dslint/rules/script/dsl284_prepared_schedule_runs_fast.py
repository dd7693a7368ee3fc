"""`accelerator.prepare` wraps a schedule that counts real steps, and each of its steps runs once for each process.

**What.** A learning rate schedule is handed to `accelerator.prepare`, the Accelerator has the default
`step_scheduler_with_optimizer=True`, and the numbers of the schedule count what really happens: epochs, because the
script steps it once an epoch; the steps of the prepared loader; or a limit at which the loop stops. So does an option
that is such a limit where a command passes it, and is counted from the loader where none does.

**Why it hurts.** `AcceleratedScheduler.step` expects a schedule for the loader of one process, and continues by as many
steps as there are processes. On 8 GPUs the warmup is over after an eighth of its steps and the learning rate reaches
its end after an eighth of the run. Nothing fails; with a cosine it climbs again.

**Fix.** Do not hand the schedule to `prepare`, or pass `step_scheduler_with_optimizer=False` to the Accelerator, or
multiply the numbers of steps by `accelerator.num_processes`.

**When it stays quiet.** The number of processes takes part in the numbers of the schedule; its length comes from a
loader that was not prepared (then it is right); an Accelerator whose arguments are not all known, `split_batches=True`,
a `dataloader_config`; DeepSpeed; a `ReduceLROnPlateau` (DSL274); one process; numbers from elsewhere; an option
that all commands leave out.

**Evidence.** Two gloo ranks, accelerate 1.15: a linear schedule over 8 steps is at its end after 4.
`AcceleratedScheduler.step` in accelerate/scheduler.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.queries.asked import behind
from dslint.python.queries.derived import Derived, Piece
from dslint.python.source import Module
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.filledoptions import options_passed
from dslint.rules.training.loopcounts import ends_of
from dslint.rules.training.plateaus import PLATEAU, instances, multiplying, wrapped_by
from dslint.rules.training.schedules import OPTIMIZERS, is_length, knows_world, number_code

META = RuleMeta(
    code="DSL284",
    name="prepared-schedule-runs-fast",
    kind="script",
    severity=Severity.WARNING,
    summary="accelerate steps a prepared schedule once for each process, and its numbers count real steps",
    markers=(r"accelerat", r"prepare"),
    references=(
        "https://github.com/huggingface/accelerate/issues/2926",
        "AcceleratedScheduler.step in accelerate/scheduler.py",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each step of a prepared schedule whose numbers count what really happens."""
    if run.context.is_one_process or run.stage is not None:
        return
    wrappers = _wrappers(run)
    derived = number_code(run) if wrappers else None
    for step in run.happenings("scheduler-step") if derived is not None else ():
        found = [wrappers[atom] for atom in instances(step.event.receiver) if atom in wrappers]
        if not found or len(found) != len(instances(step.event.receiver)) or step.event.open:
            continue
        makers = [run.makers.get(inner) for inner, _ in found]
        accelerators = multiplying(run, [event for _, event in found])
        if not accelerators or derived is None:
            continue
        why = _why(run, derived, step, [maker for maker in makers if maker is not None])
        if why and all(makers):
            yield _finding(run, step, found[0][1], makers[0], why)


def _wrappers(run: RunQuery) -> dict[Instance, tuple[Instance, Event]]:
    """Return what a call that prepares has made of a schedule, with the schedule and the call."""
    found: dict[Instance, tuple[Instance, Event]] = {}
    for happening in run.happenings("prepares"):
        for inner, outer in wrapped_by(happening.event):
            schedules = instances(inner)
            if len(schedules) == 1 and schedules[0].cls != PLATEAU:
                for atom in instances(outer):
                    if atom.cls == "accelerate.scheduler.AcceleratedScheduler":
                        found.setdefault(atom, (schedules[0], happening.event))
    return found


def _why(run: RunQuery, derived: Derived, step: Happening, makers: list[Event]) -> str:
    """Return what the numbers of the schedule count when they certainly count what really happens."""
    pieces: list[Piece] = []
    for maker in makers:
        call = maker.node
        if not isinstance(call, ast.Call) or maker.open:
            return ""
        numbers = [node for name, node in maker.nodes.items() if not OPTIMIZERS.search(name)]
        behind = derived.of(maker.module, numbers)
        if behind is None or not numbers:
            return ""
        pieces += behind
    passed = options_passed(run, derived, makers)
    if passed is not None and not any(is_length(part) for _, node in passed for part in ast.walk(node)):
        is_fast = _limits(step, passed) and not any(knows_world(node) for _, node in passed)
        return "the steps at which the loop stops, if passed" if is_fast else ""
    if not pieces or any(knows_world(node) for _, node in pieces):
        return ""
    lengths = [(m, call) for m, node in pieces for call in ast.walk(node) if is_length(call)]
    if lengths:
        prepared = _prepared_lengths(run)
        counted = all(id(call) in prepared or _is_of_prepared(derived, module, call) for module, call in lengths)
        return "the steps of the prepared loader" if counted else ""
    if _is_once_an_epoch(run, step):
        return "epochs"
    return "the steps at which the loop stops" if _limits(step, pieces) else ""


def _prepared_lengths(run: RunQuery) -> set[int]:
    """Return the calls (ids) of `len` that ask loaders which accelerate has made of others."""
    made = {a for h in run.occurrences("prepares") for _, outer in wrapped_by(h.event) for a in instances(outer)}
    asked: dict[int, bool] = {}
    for found in run.occurrences("asks-length"):
        atoms, node = instances(found.event.receiver), id(found.event.node)
        asked[node] = asked.get(node, True) and bool(atoms) and made.issuperset(atoms)
    return {node for node, is_prepared in asked.items() if is_prepared}


def _is_of_prepared(derived: Derived, module: Module, node: ast.AST) -> bool:
    """Return whether the length is asked of a loader that the same function has prepared before."""
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if given is None:
        return False
    scope = derived.scopes(module, node)[0]
    name = ast.unparse(given)
    for statement in ast.walk(scope):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        function = statement.value.func
        if getattr(function, "attr", "") not in ("prepare", "prepare_data_loader"):
            continue
        targets = [part for target in statement.targets for part in getattr(target, "elts", [target])]
        if any(ast.unparse(part) == name for part in targets):
            return statement.lineno < int(getattr(node, "lineno", 0))
    return False


def _is_once_an_epoch(run: RunQuery, step: Happening) -> bool:
    """Return whether the loops over a loader in which the script trains all stand beside the step."""
    loops = [node for node in step.around if isinstance(node, Loop)]
    if not loops or any(loop.items for loop in loops):
        return False
    trained = [h for h in run.occurrences("backward", "engine-backward") if loops[-1] in h.around]
    return bool(trained) and all(
        any(isinstance(n, Loop) and n.items for n in h.around[h.around.index(loops[-1]) + 1 :]) for h in trained
    )


def _limits(step: Happening, pieces: list[Piece]) -> bool:
    """Return whether a number of the schedule is also where the loop around the step ends."""
    words = {_word(n) for _, piece in pieces for n in ast.walk(piece)} - {""}
    words = {word for word in words if re.search(r"step|iter|update|total", word)}
    for loop in (node for node in step.around if isinstance(node, Loop)):
        asked = (part for test in ends_of(loop) for part in behind(loop.module, test))
        if any(_word(part) in words for test in asked for part in ast.walk(test)):
            return True
    return False


def _word(node: ast.AST) -> str:
    return (
        str(getattr(node, "attr", "") or getattr(node, "id", "")) if isinstance(node, ast.Name | ast.Attribute) else ""
    )


def _finding(run: RunQuery, step: Happening, prepared: Event, maker: Event | None, why: str) -> Finding:
    places = [run.location(prepared.module, prepared.node, "wraps the schedule")]
    if maker is not None:
        places.append(run.location(maker.module, maker.node, f"counts {why}"))
    return run.finding(
        META,
        step.event.module,
        step.event.node,
        f"Accelerate runs this step once per process, but the schedule counts {why}: it ends too early",
        hint="Keep the schedule out of `prepare`, or multiply its numbers of steps by `accelerator.num_processes`",
        related=tuple(places),
    )


_MAIN = """\
import math

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import get_linear_schedule_with_warmup


def main(data, args):
    accelerator = Accelerator(%(arguments)s)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=4)
    %(early)s
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    %(late)s
    step = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step >= args.max_steps:
                return
"""
_LENGTH = "total = args.epochs * math.ceil(len(loader) / args.accumulation)"
_SCHEDULE = "scheduler = accelerator.prepare(get_linear_schedule_with_warmup(optimizer, %s, %s))"


def _main(length: str, late: str, early: str = "", arguments: str = "") -> str:
    late = "\n    ".join([late, _SCHEDULE % ("0", length)] if late else [_SCHEDULE % ("0", length)])
    return _MAIN % {"late": late, "early": early or "pass", "arguments": arguments}


_FILLED = """
    if args.max_steps is None:
        args.max_steps = math.ceil(len(loader) / args.accumulation)
        filled = True"""
_AGAIN = """
    if filled:
        args.max_steps = math.ceil(len(loader) / args.accumulation)"""


def _filled(length: str, guard: str = _FILLED) -> str:
    """Return the form of many examples: an option that is counted where no command passes it, and again later."""
    made = f"filled = False{guard}\n    scheduler = get_linear_schedule_with_warmup(optimizer, 0, {length})"
    late = f"scheduler = accelerator.prepare(scheduler){_AGAIN}"
    return _MAIN % {"early": made, "late": late, "arguments": ""}


_EPOCHS = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from schedules import build


class Trainer:
    def __init__(self, model, data, config):
        self.accelerator = Accelerator(mixed_precision="bf16")
        optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
        scheduler = build(optimizer, config.epochs)
        self.model, self.optimizer, self.loader, self.scheduler = self.accelerator.prepare(
            model, optimizer, DataLoader(data), scheduler
        )

    def train(self, epochs):
        for epoch in range(epochs):
            self.train_epoch()
            self.scheduler.step()

    def train_epoch(self):
        for x, y in self.loader:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()


def main(data, config):
    Trainer(torch.nn.Linear(4, 1), data, config).train(config.epochs)
"""
_ALONE = "step_scheduler_with_optimizer=False"
_LIMITED = _main("args.max_steps", "")
_BUILD = """\
from torch.optim.lr_scheduler import CosineAnnealingLR


def build(optimizer, epochs):
    return CosineAnnealingLR(optimizer, T_max=epochs%s)
"""

EXAMPLES = (
    bad("the length of the prepared loader", {"train.py": _main("total", _LENGTH)}, "train.py:24"),
    bad("the limit of the loop", {"train.py": _LIMITED}, "train.py:23"),
    bad(
        "a schedule over epochs, made in another file",
        {"schedules.py": _BUILD % "", "train.py": _EPOCHS},
        "train.py:20",
    ),
    bad("an option that the loader fills", {"train.py": _filled("args.max_steps")}, "train.py:29"),
    good("the option is multiplied", {"train.py": _filled("args.max_steps * accelerator.num_processes")}),
    good(
        "the loader says how many in any case",
        {"train.py": _filled("args.max_steps", _FILLED.replace("is None", "!= 0"))},
    ),
    good("the length of the loader of one process", {"train.py": _main("total", "", _LENGTH)}),
    good("multiplied", {"train.py": _main("args.max_steps * accelerator.num_processes", "")}),
    good("multiplied before", {"train.py": _main("total", _LENGTH + " * accelerator.num_processes")}),
    good(
        "schedules are left alone",
        {"train.py": _main("args.max_steps", "", arguments="step_scheduler_with_optimizer=False")},
    ),
    good("batches are split", {"train.py": _main("args.max_steps", "", arguments="split_batches=True")}),
    good(
        "the schedule is not prepared",
        {"train.py": _LIMITED.replace(".prepare(get_linear", ".print(get_linear")},
    ),
    good("a length from elsewhere", {"train.py": _main("args.length", "")}),
    good(
        "epochs times processes",
        {"schedules.py": _BUILD % " * num_processes()", "train.py": _EPOCHS},
    ),
    good("one process", {"train.py": _LIMITED}, world_size=1),
)
