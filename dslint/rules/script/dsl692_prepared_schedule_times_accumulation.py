"""The numbers of a prepared schedule are multiplied by the accumulated micro batches, and accelerate skips these.

**What.** `get_scheduler(..., num_training_steps=args.max_train_steps * args.gradient_accumulation_steps)`;
`accelerator.prepare` wraps the schedule, and the script trains under `accelerator.accumulate`.

Or the length is that of the loader before it is prepared, times the epochs (`len(loader) * epochs`), and nothing
divides it by the micro batches that the Accelerator puts together.

**Why it hurts.** `AcceleratedScheduler.step` does nothing in turns without an update, and continues by as many steps as
there are processes in the others. The micro batches of a step take no part. With four of them on two GPUs the warmup
is twice as long as it says and the schedule is half over when the run ends. Where there happen to be as many
processes as micro batches nobody notices, and the next run on other machines learns otherwise. A length of all batches
ends at a fourth of the way with four micro batches, on any number of processes. Nothing fails.

**Fix.** Write `accelerator.num_processes` in the place of the micro batches; divide the length of the loader by them.

**When it stays quiet.** The number of processes takes part, too; one micro batch for certain; a script without
`accelerator.accumulate`, whose schedule may step in each turn; an Accelerator that leaves the schedule alone
(`step_scheduler_with_optimizer=False`); DeepSpeed.

**Evidence.** Two gloo ranks, accelerate 1.15, four micro batches: a linear schedule to zero over
`steps * gradient_accumulation_steps` has half of the learning rate left at the end. `AcceleratedScheduler.step` in
accelerate/scheduler.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.derived import Derived
from dslint.python.queries.factors import Factors
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import SCHEDULE, prepared_by
from dslint.rules.training.filledoptions import code_behind
from dslint.rules.training.plateaus import PLATEAU, instances, multiplying
from dslint.rules.training.schedules import OPTIMIZERS, OTHERS, knows_world
from dslint.rules.training.training import ACCELERATOR, COUNTS, maker_of, micro_batches

META = RuleMeta(
    code="DSL692",
    name="prepared-schedule-times-accumulation",
    kind="script",
    severity=Severity.WARNING,
    summary="a prepared schedule counts micro batches, and accelerate steps it only with the optimizer",
    markers=(r"accelerat", r"prepare", r"\.accumulate\("),
    references=(
        "https://github.com/huggingface/diffusers/issues/4387",
        "AcceleratedScheduler.step in accelerate/scheduler.py",
    ),
    depends_on_run=True,
)


_MAKES = re.compile(r"sched", re.I)
_LENGTH = "num_training_steps"
_LENGTHS = (_LENGTH, "T_max", "total_steps")
_LOADER = re.compile(r"loader|_dl$|^dl$|train$|batches", re.I)
_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class _Made:
    """The call that makes a schedule, and its numbers."""

    module: Module
    node: ast.AST
    numbers: list[ast.expr]


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each number of a prepared schedule that is a product with the micro batches of a step."""
    if run.stage is not None or not run.has("accumulate"):
        return
    modules, trees = run.machine.program.modules(), [tree for _, tree in run.trees()]
    derived, factors = Derived(modules, trees, OTHERS), Factors(modules, trees)
    seen: set[int] = set()
    for found in run.happenings("prepares"):
        if not multiplying(run, [found.event]) or not _accumulates(run, found.event):
            continue
        for made in (*_known(run, found.event), *_by_name(derived, found.event)):
            numbers = [node for node in made.numbers if _is_multiplied(factors, made.module, node)]
            if id(made.node) in seen or _knows(derived, made):
                continue
            length = _undivided(run, derived, found.event, made) if not numbers else None
            if length is not None:
                numbers = [length]
            if numbers:
                seen.add(id(made.node))
                yield _finding(run, found.event, made, numbers, is_product=length is None)


def _undivided(run: RunQuery, derived: Derived, prepared: Event, made: _Made) -> ast.expr | None:
    """Return the length of a schedule that counts the batches of a loader before it is prepared, each as a step.

    The processes that share the loader out and those that step the schedule are as many; the micro batches remain.
    """
    counted = micro_batches(run, instances(prepared.receiver), ACCELERATOR)
    count = (counted.count or counted.default) if counted is not None else None
    calls = {id(found.event.node) for found in run.happenings("prepares")}
    if count is None or count < _SEVERAL or len(calls) != 1 or not isinstance(made.node, ast.Call):
        return None
    length = next((k.value for k in made.node.keywords if k.arg in _LENGTHS), None)
    pieces = code_behind(derived, [(made.module, length)]) if length is not None else []
    nodes = [node for _, piece in pieces for node in ast.walk(piece)]
    has_batches = any(isinstance(n, ast.Call) and _is_length_of_loader(n) for n in nodes)
    is_divided = any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div | ast.FloorDiv) for n in nodes)
    words = {getattr(n, "id", "") or getattr(n, "attr", "") for n in nodes}
    return length if has_batches and not is_divided and not any(map(COUNTS.search, words)) else None


def _is_length_of_loader(call: ast.Call) -> bool:
    is_length = isinstance(call.func, ast.Name) and call.func.id == "len" and len(call.args) == 1
    return is_length and _LOADER.search(ast.unparse(call.args[0])) is not None


def _accumulates(run: RunQuery, prepared: Event) -> bool:
    """Return whether a step may take more than one micro batch, as far as anybody says."""
    owners = instances(prepared.receiver)
    counted, maker = micro_batches(run, owners, ACCELERATOR), maker_of(run, owners)
    if counted is None:
        return maker is not None and "gradient_accumulation_plugin" in maker.arguments
    return counted.count != 1


def _known(run: RunQuery, prepared: Event) -> Iterator[_Made]:
    """Yield the schedules that a call prepares, as the interpreter knows them."""
    schedules = [part.was for part in prepared_by(prepared) or [] if part.cls == SCHEDULE]
    for atom in (atom for value in schedules for atom in instances(value)):
        maker = run.makers.get(atom)
        if maker is not None and not maker.open and atom.cls != PLATEAU:
            numbers = [node for name, node in maker.nodes.items() if not OPTIMIZERS.search(name)]
            yield _Made(maker.module, maker.node, numbers)


def _by_name(derived: Derived, prepared: Event) -> Iterator[_Made]:
    """Yield what a call prepares that a function nobody has a model of has made, with the length of a schedule."""
    given = prepared.node.args if isinstance(prepared.node, ast.Call) else []
    for part, name in zip(prepared_by(prepared) or [], given, strict=False):
        if part.cls or not isinstance(name, ast.Name):
            continue
        pieces = [piece for piece in derived.of_name(prepared.module, name) if not _prepares(piece[1])]
        for module, call in (piece for piece in pieces if len(pieces) == 1):
            if isinstance(call, ast.Call) and _MAKES.search(ast.unparse(call.func)):
                numbers = [k.value for k in call.keywords if k.arg in ("num_warmup_steps", _LENGTH)]
                if any(k.arg == _LENGTH for k in call.keywords):
                    yield _Made(module, call, numbers)


def _prepares(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "prepare"


def _is_multiplied(factors: Factors, module: Module, node: ast.expr) -> bool:
    return any(name.isidentifier() and COUNTS.search(name) for name in factors.of(module, node))


def _knows(derived: Derived, made: _Made) -> bool:
    """Return whether the number of processes is behind one of the numbers."""
    pieces = code_behind(derived, [(made.module, node) for node in made.numbers])
    return any(knows_world(node) for _, node in pieces)


def _finding(run: RunQuery, prepared: Event, made: _Made, numbers: list[ast.expr], *, is_product: bool) -> Finding:
    shown = run.text(made.module, numbers[-1])
    return run.finding(
        META,
        made.module,
        numbers[0],
        f"`{shown}` counts micro batches, but accelerate steps a prepared schedule once per process with the optimizer",
        hint="Multiply by `accelerator.num_processes`" if is_product else "Divide by the micro batches of a step",
        related=(run.location(prepared.module, prepared.node, "wraps the schedule"),),
        facts={"factor": "accumulation"},
    )


_TRAIN = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import get_scheduler


def main(data, args):
    accelerator = Accelerator(%(arguments)s)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(data, batch_size=4, shuffle=True)
    %(before)s
    schedule = get_scheduler(
        "cosine",
        optimizer=optimizer,
        num_warmup_steps=%(warmup)s,
        num_training_steps=%(length)s,
    )
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    steps = 0
    for x, y in loader:
        with accelerator.%(block)s:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            steps += 1
        if steps >= args.length:
            break
"""
_GIVEN = "gradient_accumulation_steps=args.accumulation_steps"


def _train(length: str, warmup: str = "0", before: str = "pass", arguments: str = _GIVEN, block: str = "") -> str:
    return _TRAIN % {
        "length": length,
        "warmup": warmup,
        "before": before,
        "arguments": arguments,
        "block": block or "accumulate(model)",
    }


_BOTH = "args.warmup * args.accumulation_steps"
_TOTAL = "total = int(args.length * accelerator.gradient_accumulation_steps)"

EXAMPLES = (
    bad(
        "warmup and length",
        {"train.py": _train("args.length * args.accumulation_steps", _BOTH)},
        at="train.py:16 warning",
    ),
    bad("the warmup alone", {"train.py": _train("args.total", _BOTH)}, at="train.py:16 warning"),
    bad(
        "a variable, and what the Accelerator says",
        {"train.py": _train("total", before=_TOTAL)},
        at="train.py:17 warning",
    ),
    bad(
        "a plugin says how many",
        {
            "train.py": _train(
                "args.length * args.accumulation_steps",
                arguments="gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=args.accumulation_steps)",
            ).replace("import Accelerator", "import Accelerator, GradientAccumulationPlugin")
        },
        at="train.py:17 warning",
    ),
    bad(
        "a function of another library",
        {"train.py": _train("args.length * args.accumulation_steps").replace("from transformers", "from diffusers")},
        at="train.py:17 warning",
    ),
    bad(
        "all batches of the loader",
        {"train.py": _train("3 * len(loader)", arguments="gradient_accumulation_steps=4")},
        at="train.py:17 warning",
    ),
    good(
        "the batches of the loader by those of a step, or one of them",
        {
            "by.py": _train("3 * len(loader) // 4", arguments="gradient_accumulation_steps=4"),
            "one.py": _train("3 * len(loader)", arguments="gradient_accumulation_steps=1"),
        },
    ),
    good("processes", {"train.py": _train("args.total * accelerator.num_processes")}),
    good(
        "both",
        {"train.py": _train("args.length * args.accumulation_steps * accelerator.num_processes")},
    ),
    good(
        "one micro batch",
        {"train.py": _train("args.total * args.accumulation_steps", arguments="")},
    ),
    good(
        "the schedule steps by itself",
        {
            "train.py": _train(
                "args.length * args.accumulation_steps",
                _BOTH,
                arguments=f"{_GIVEN}, step_scheduler_with_optimizer=False",
            )
        },
    ),
    good(
        "every turn is a step for accelerate",
        {"train.py": _train("args.total * args.accumulation_steps", block="autocast()")},
    ),
)
