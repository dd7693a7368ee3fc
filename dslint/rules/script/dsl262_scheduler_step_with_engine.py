"""A learning-rate schedule that a DeepSpeed engine steps is stepped by the script too.

**What.** `lr_scheduler.step()` beside `engine.step()`, on the schedule that came back from `deepspeed.initialize` or
was handed to it.

**Why it hurts.** `engine.step()` steps the schedule after each optimizer step. The second call makes it run twice as
fast (with accumulation faster still): warm-up ends early, the rate decays to its end in half of the run. Silent.

**Fix.** Delete the call, which the fix does; `engine.step(lr_kwargs={...})` passes arguments on.

**When it stays quiet.** A schedule that DeepSpeed does not know; schedules that accelerate prepared; the arm without
an engine; a file in which no engine steps beside it.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8, stages 0 (with accumulation) and 2: the learning rates of a warm-up
rise at twice the speed and more. `DeepSpeedEngine._take_model_step` in deepspeed/runtime/engine.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import beside, excludes, has_other_arm, owned_by, stage_at

META = RuleMeta(
    code="DSL262",
    name="scheduler-step-with-engine",
    kind="script",
    severity=Severity.WARNING,
    summary="the script steps a learning-rate schedule that the DeepSpeed engine steps as well",
    fix="safe",
    markers=(r"deepspeed",),
    references=(
        "https://www.deepspeed.ai/getting-started/#training",
        "DeepSpeedEngine._take_model_step in deepspeed/runtime/engine.py",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each step of a schedule beside a step of the engine that owns it."""
    owned = owned_by(run, "lr_scheduler", 3)
    seen: set[int] = set()
    for found in run.occurrences("scheduler-step") if owned else ():
        event = found.event
        owners = [owned[atom] for atom in instances(event.receiver) if atom in owned]
        is_sure = event.receiver is not None and len(owners) == len(event.receiver.atoms) > 0
        if not is_sure or "engine-step" in event.tags or id(event.node) in seen or excludes(owners[0].made, found):
            continue
        mine = [e for e in beside(found, "engine-step") if _is_of(run, e, owners[0].maker)]
        if not mine or has_other_arm(found, "step", "engine-step", "scheduler-step", "optimizer-step"):
            continue
        seen.add(id(event.node))
        yield _finding(run, event, mine[0], owners[0].maker)


def _is_of(run: RunQuery, event: Event, maker: Event) -> bool:
    return any(run.makers.get(atom) is maker for atom in instances(event.receiver))


def _finding(run: RunQuery, event: Event, step: Event, maker: Event) -> Finding:
    called = [run.text(e.module, e.node.func if isinstance(e.node, ast.Call) else e.node) for e in (event, step)]
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{called[0]}()` steps a schedule that `{called[1]}()` also steps: the learning rate moves twice as fast"
        " or more",
        hint="Delete the call",
        related=(
            run.location(step.module, step.node, "also steps the schedule"),
            run.location(maker.module, maker.node, "the engine gets the schedule here"),
        ),
        fix=_fix(run, event),
        facts={"stage": stage_at(run, maker)},
    )


def _fix(run: RunQuery, event: Event) -> Fix | None:
    """Delete the line, where the call is all of it and other statements stay in the block."""
    module = event.module
    blocks = (getattr(node, name, None) for node in module.nodes for name in ("body", "orelse", "finalbody"))
    lists = [block for block in blocks if isinstance(block, list)]
    block = next((b for b in lists if any(isinstance(s, ast.Expr) and s.value is event.node for s in b)), None)
    if block is None or len(block) < 2 or module.path != run.path:
        return None
    text, span = module.source.text, module.span(event.node)
    start = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.end) + 1 or len(text)
    if text[start : span.start].strip() or text[span.end : end].strip():
        return None
    return Fix("Leave the schedule to the engine", (Edit(run.path, Span(start, end), ""),))


_TRAIN = """\
import deepspeed


def train(args, model, loader):
    engine, optimizer, _, lr_scheduler = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()
%s"""
_HANDED = """\
import deepspeed
import torch


def train(args, model, optimizer, loader):
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    engine = deepspeed.initialize(args=args, model=model, optimizer=optimizer%s)[0]
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()
        schedule.step()
"""

EXAMPLES = (
    bad(
        "the schedule that came back",
        {"train.py": _TRAIN % "        lr_scheduler.step()\n"},
        "train.py:9",
        fixed={"train.py": _TRAIN % ""},
    ),
    bad(
        "the schedule that was handed over",
        {"train.py": _HANDED % ", lr_scheduler=schedule"},
        "train.py:11",
        fixed={"train.py": (_HANDED % ", lr_scheduler=schedule").replace("        schedule.step()\n", "")},
    ),
    good("the engine alone", {"train.py": _TRAIN % ""}),
    good("a schedule that DeepSpeed does not know", {"train.py": _HANDED % ""}),
    good(
        "the arm without an engine",
        {
            "train.py": """\
import deepspeed


def train(args, model, optimizer, schedule, loader):
    if args.deepspeed:
        model, optimizer, _, schedule = deepspeed.initialize(
            args=args, model=model, optimizer=optimizer, lr_scheduler=schedule
        )
    for batch in loader:
        loss = model(batch)
        if args.deepspeed:
            model.backward(loss)
            model.step()
        else:
            loss.backward()
            optimizer.step()
            schedule.step()
"""
        },
    ),
    good(
        "accelerate decides when it steps",
        {
            "train.py": """\
from accelerate import Accelerator
from transformers import get_scheduler


def train(model, optimizer, loader):
    accelerator = Accelerator()
    schedule = get_scheduler("linear", optimizer)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
"""
        },
    ),
)
