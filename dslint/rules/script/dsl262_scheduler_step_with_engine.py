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

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.script.training.enginewords import ENGINE, steps_another
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL262",
    name="scheduler-step-with-engine",
    kind="script",
    severity=Severity.WARNING,
    summary="the script steps a learning-rate schedule that the DeepSpeed engine steps as well",
    fix="safe",
    markers=(r"\.step\(", *ENGINE, r"(?i:sched|lr)"),
    references=(
        "https://www.deepspeed.ai/getting-started/#training",
        "DeepSpeedEngine._take_model_step in deepspeed/runtime/engine.py",
    ),
)

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

precheck = steps_another


class Check(ScriptCheck):
    """Looks at every `.step()` of a schedule."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire beside a step of the engine that owns the schedule."""
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "step":
            return
        schedule = node.func.value
        kind = self.ctx.kind(schedule)
        if kind not in ("client_scheduler", "ds_scheduler"):
            return
        objects = self.ctx.objects
        maker = objects.taken(schedule) if kind == "client_scheduler" else objects.made(schedule)
        steps = self.ctx.training.beside(node, "engine", "step")
        mine = [s for s in steps if isinstance(s.func, cst.Attribute) and objects.made(s.func.value) in (maker, None)]
        if not mine or self.ctx.training.has_other_arm(node, "step"):
            return
        text = self.ctx.text(schedule)
        related = [self.ctx.location(mine[0], "steps the schedule as well")]
        related += [self.ctx.location(maker, "the engine gets the schedule here")] if maker is not None else []
        self.report(
            node,
            f"`{text}.step()` steps a schedule that `{self.ctx.text(mine[0].func)}()` steps as well: the learning rate "
            "runs through its schedule at twice the speed or more",
            hint="Delete the call",
            related=tuple(related),
            fix=self._fix(node),
            facts={"stage": self.ctx.stage},
        )

    def _fix(self, node: cst.Call) -> Fix | None:
        """Delete the line, where the call is all of it and other statements stay in the block."""
        statement = self.ctx.parent(node)
        line = self.ctx.parent(statement) if isinstance(statement, cst.Expr) else None
        block = self.ctx.parent(line) if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
        if line is None or not isinstance(block, cst.IndentedBlock | cst.Module) or len(block.body) < 2:
            return None
        text, span = self.ctx.doc.source.text, self.ctx.span(node)
        start = text.rfind("\n", 0, span.start) + 1
        end = text.find("\n", span.end) + 1 or len(text)
        if text[start : span.start].strip() or text[span.end : end].strip():
            return None
        return Fix("Leave the schedule to the engine", (Edit(self.ctx.doc.path, Span(start, end), ""),))
