"""The length of a prepared schedule is multiplied by the number of processes, and its warmup is not.

**What.** `get_scheduler(..., num_warmup_steps=warmup, num_training_steps=steps * accelerator.num_processes)`, and
accelerate prepares the schedule.

**Why it hurts.** A prepared schedule continues by N steps for each update. Its length counts that, its warmup does not:
on eight GPUs a warmup of 1000 updates is over after 125, and the learning rate is at its peak while Adam knows nothing
yet. Nothing fails.

**Fix.** `num_warmup_steps=warmup * accelerator.num_processes`.

**When it stays quiet.** No warmup; a warmup that is a part of the length, or that knows the number of processes in any
way; a length that does not (DSL284); an Accelerator that does not step it once for each process (`split_batches`,
`step_scheduler_with_optimizer=False`, DeepSpeed); one process.

**Evidence.** accelerate 1.15 `AcceleratedScheduler.step` runs the schedule `num_processes` times. The examples of
transformers multiply both numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.derived import Derived
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import SCHEDULE, prepared_by
from dslint.rules.training.plateaus import instances, multiplying
from dslint.rules.training.schedules import OTHERS, knows_world

META = RuleMeta(
    code="DSL650",
    name="warmup-without-processes",
    kind="script",
    severity=Severity.WARNING,
    summary="the length of a prepared schedule counts the processes, and its warmup does not",
    markers=(r"accelerat", r"prepare", r"warmup", r"num_processes"),
    references=(
        "https://github.com/huggingface/accelerate/issues/662",
        "AcceleratedScheduler.step in accelerate/scheduler.py",
    ),
    depends_on_run=True,
    no_experiment="how often a prepared schedule steps is shown by the experiment of DSL284",
)
_WARMUP, _LENGTH = "num_warmup_steps", "num_training_steps"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each warmup that counts updates where the length counts steps of all processes."""
    if run.context.is_one_process or run.stage is not None:
        return
    derived: Derived | None = None
    seen: set[int] = set()
    for found in run.happenings("prepares"):
        schedules = [part.was for part in prepared_by(found.event) or [] if part.cls == SCHEDULE]
        if not schedules or not multiplying(run, [found.event]):
            continue
        derived = derived or Derived(run.machine.program.modules(), (tree for _, tree in run.trees()), OTHERS)
        for atom in (atom for value in schedules for atom in instances(value)):
            maker = run.makers.get(atom)
            if maker is None or maker.open or id(maker.node) in seen or not {_WARMUP, _LENGTH} <= maker.nodes.keys():
                continue
            warmup = maker.arguments[_WARMUP]
            if _is_of_processes(derived, maker, _LENGTH) and not _knows(derived, maker) and run.likely(warmup) != (0,):
                seen.add(id(maker.node))
                yield _finding(run, found.event, maker)


def _is_of_processes(derived: Derived, maker: Event, name: str) -> bool:
    """Return whether a number certainly is a product with the number of processes."""
    node = maker.nodes[name]
    pieces = [piece for _, piece in derived.of(maker.module, [node]) or []]
    products = [n for p in pieces for n in ast.walk(p) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
    return any("num_processes" in ast.unparse(product) for product in products)


def _knows(derived: Derived, maker: Event) -> bool:
    pieces = derived.of(maker.module, [maker.nodes[_WARMUP]])
    return pieces is None or any(knows_world(piece) for _, piece in pieces)


def _finding(run: RunQuery, prepared: Event, maker: Event) -> Finding:
    node = maker.nodes[_WARMUP]
    shown = run.text(maker.module, node)
    return run.finding(
        META,
        maker.module,
        node,
        f"`{shown}` counts updates, but the prepared schedule moves once per process: warmup ends N times too early",
        hint="Multiply it by `accelerator.num_processes` too",
        related=(
            run.location(maker.module, maker.nodes[_LENGTH], "the length counts the processes"),
            run.location(prepared.module, prepared.node, "prepared here"),
        ),
    )


_TRAIN = """\
import torch
from accelerate import Accelerator
from transformers import get_scheduler


def main(loader, args):
    accelerator = Accelerator(%s)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    total = args.epochs * len(loader) * accelerator.num_processes
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=%s, num_training_steps=total)
    schedule = accelerator.prepare(schedule)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        schedule.step()
"""

EXAMPLES = (
    bad("an option", {"train.py": _TRAIN % ("", "args.warmup")}, at="train.py:12 warning"),
    good("multiplied, too", {"train.py": _TRAIN % ("", "args.warmup * accelerator.num_processes")}),
    good("a part of the length", {"train.py": _TRAIN % ("", "int(0.1 * total)")}),
    good("none", {"train.py": _TRAIN % ("", "0")}),
    good("one step each", {"train.py": _TRAIN % ("step_scheduler_with_optimizer=False", "args.warmup")}),
)
