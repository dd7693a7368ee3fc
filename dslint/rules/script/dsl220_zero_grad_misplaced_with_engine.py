"""Gradients are cleared after each micro batch although the engine accumulates several.

**What.** `engine.zero_grad()` or `optimizer.zero_grad()` in the loop over micro batches of a DeepSpeed engine whose
config accumulates more than one of them.

**Why it hurts.** At stage 0 the gradients of all micro batches but the last are lost: the run trains on a fraction of
its data and nothing raises. Under ZeRO the gradients are kept elsewhere and the call does nothing.

**Fix.** Delete it: `engine.step()` clears the gradients when it has used them.

**When it stays quiet.** Accumulation of 1, or of a number that nobody states; a call under a test of the boundary or
of a remainder; the arm without an engine; optimizers that accelerate prepared, which know when to clear.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8, two micro batches a step: stage 0 ends with other weights, stage 2 does
not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import (
    ENGINE,
    MicroBatches,
    arms_of,
    beside,
    excludes,
    first_of,
    micro_batches,
    owners_by_object,
    stage_at,
)

META = RuleMeta(
    code="DSL220",
    name="zero-grad-misplaced-with-engine",
    kind="script",
    severity=Severity.WARNING,
    summary="gradients are cleared after each of the micro batches that a DeepSpeed engine accumulates",
    markers=(r"deepspeed",),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/6554",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call that clears gradients in every micro batch of an engine that accumulates several."""
    owned = owners_by_object(run)
    seen: set[int] = set()
    for found in run.occurrences("zero-grad") if owned else ():
        event = found.event
        made = [owned[atom] for atom in instances(event.receiver) if atom in owned]
        is_sure = event.receiver is not None and len(made) == len(event.receiver.atoms) > 0
        if not is_sure or "engine-step" in event.tags or id(event.node) in seen or excludes(made[0], found):
            continue
        steps = micro_batches(run, first_of(made[0].event.result), ENGINE)
        in_loop = any(isinstance(node, Loop) for node in found.around)
        if steps is None or steps.count is None or steps.count <= 1 or not in_loop:
            continue
        if beside(found, "engine-step") and _runs_with_backward(run, found):
            seen.add(id(event.node))
            yield _finding(run, event, made[0].event, steps)


def _runs_with_backward(run: RunQuery, found: Happening) -> bool:
    """No test stands before the call that does not stand before a backward in the same turn."""
    near = {id(event) for event in beside(found, "engine-backward")}
    mine = {(id(arm.alt), arm.holds) for arm in arms_of(found)}
    others = (other for other in run.occurrences("engine-backward") if id(other.event) in near)
    return any(mine <= {(id(arm.alt), arm.holds) for arm in arms_of(other)} for other in others)


def _finding(run: RunQuery, event: Event, maker: Event, steps: MicroBatches) -> Finding:
    stage = stage_at(run, maker)
    what = "at stage 0 only the last gradient counts"
    if stage == 0:
        what = "all gradients but the last are lost"
    called = run.text(event.module, event.node.func if isinstance(event.node, ast.Call) else event.node)
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{called}()` runs after each of the {steps.count} micro batches of a step: {what}",
        hint="Delete it: `engine.step()` clears the gradients when it has used them",
        related=steps.places,
        severity=Severity.WARNING if stage == 0 else Severity.INFO,
        facts={"stage": stage, "gas": steps.count},
    )


_TRAIN = """\
import deepspeed

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": %d,
    "optimizer": {"type": "Adam"},
    "zero_optimization": {"stage": %d},
}


def train(model, loader):
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=CONFIG)
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()
        optimizer.zero_grad()
"""

EXAMPLES = (
    bad("stage 0 loses all but the last", {"train.py": _TRAIN % (4, 0)}, "train.py:16 warning"),
    bad("under ZeRO it does nothing", {"train.py": _TRAIN % (4, 2)}, "train.py:16 info"),
    good("one micro batch a step", {"train.py": _TRAIN % (1, 0)}),
    good(
        "at the boundary",
        {
            "train.py": (_TRAIN % (4, 0)).replace(
                "        optimizer.zero_grad()",
                "        if engine.is_gradient_accumulation_boundary():\n            optimizer.zero_grad()",
            )
        },
    ),
    good(
        "nobody states the accumulation",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        engine.zero_grad()
        engine.backward(engine(batch))
        engine.step()
"""
        },
    ),
)
