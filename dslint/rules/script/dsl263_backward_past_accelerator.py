"""`loss.backward()` in a script that lets accelerate prepare its model.

**What.** The loss of a model from `accelerator.prepare(...)` runs its own backward instead of
`accelerator.backward(loss)`.

**Why it hurts.** The Accelerator divides the loss by the micro batches of a step, scales it for fp16 and drives
DeepSpeed. Past it, accumulated gradients are that many times too large, fp16 gradients underflow to 0, and a DeepSpeed
engine never steps: it steps inside `accelerator.backward`. Nothing raises.

**Fix.** `accelerator.backward(loss)`, which the fix writes.

**When it stays quiet.** A loss that comes from another model; `scaler.scale(loss).backward()`, which scales by hand.
It is an information where the file shows neither accumulation nor fp16 and no run is known to use DeepSpeed: the
launch configuration may add them.

**Evidence.** Two gloo ranks, accelerate 1.15: with four micro batches a step the gradients are four times as large as
with `accelerator.backward`; without accumulation they agree. `Accelerator.backward` and
`DeepSpeedEngineWrapper.backward` in accelerate: the engine's step follows its backward there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Location
from dslint.python.events import Event
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances, wrapped_by
from dslint.rules.training.training import ACCELERATOR, constant_of, has_other_arm, maker_of, micro_batches, owners_of
from dslint.rules.wrapping.ddps import wrappers_behind
from dslint.rules.zero.enginenames import called_on, function_of, is_scaled

META = RuleMeta(
    code="DSL263",
    name="backward-past-accelerator",
    kind="script",
    severity=Severity.WARNING,
    summary="a loss runs its own backward although accelerate prepared its model",
    fix="safe",
    markers=(r"accelerat",),
    references=("https://huggingface.co/docs/accelerate/basic_tutorials/migration#backward",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each backward of a loss that certainly comes from prepared models alone."""
    prepared = _prepared(run)
    seen: set[int] = set()
    for found in run.occurrences("backward") if prepared else ():
        event = found.event
        made_by = wrappers_behind(run, event)
        if "engine-backward" in event.tags or not made_by or id(event.node) in seen:
            continue
        if any(atom not in prepared for atom in made_by) or has_other_arm(found, "backward", "backward"):
            continue
        told = _finding(run, event, prepared[made_by[0]])
        if told is not None:
            seen.add(id(event.node))
            yield told


def _prepared(run: RunQuery) -> dict[Instance, Event]:
    """Return the objects that come out of a call that prepares them, with the call."""
    found: dict[Instance, Event] = {}
    for made in run.occurrences("prepares"):
        for _, outer in wrapped_by(made.event):
            for atom in instances(outer) if owners_of(run, made.event.receiver, ACCELERATOR) else ():
                found.setdefault(atom, made.event)
    return found


def _finding(run: RunQuery, event: Event, made: Event) -> Finding | None:
    node, module = event.node, event.module
    loss = called_on(module, node)
    if loss is None or is_scaled(loss):
        return None
    severity, what, related = _effect(run, owners_of(run, made.receiver, ACCELERATOR))
    owner = _called(made, event)
    fixed = f"{owner}.backward({module.text(loss)})"
    can_fix = (
        bool(owner)
        and isinstance(getattr(node, "func", None), ast.Attribute)
        and "\n" not in fixed
        and module.path == run.path
    )
    return run.finding(
        META,
        module,
        node,
        f"`{run.text(module, loss)}.backward()` bypasses the Accelerator: {what}",
        hint=f"Call `{owner or 'accelerator'}.backward({run.text(module, loss)})`",
        related=related,
        severity=severity,
        facts={"accumulates": "micro batches" in what},
        fix=Fix("Let the Accelerator run the backward", (Edit(run.path, module.span(node), fixed),))
        if can_fix
        else None,
    )


def _effect(run: RunQuery, owners: list[Instance]) -> tuple[Severity, str, tuple[Location, ...]]:
    """What is lost, as far as the script and the run say."""
    stage = run.context.zero_stage
    if stage.is_known:
        return Severity.WARNING, "the DeepSpeed engine steps only in `accelerator.backward`", stage.origins
    steps, maker = micro_batches(run, owners, ACCELERATOR), maker_of(run, owners)
    if steps is not None and steps.count != 1:
        places = tuple(place.labelled("accumulates") for place in steps.places)
        return Severity.WARNING, "the gradients of micro batches are summed, not averaged", places
    if maker is not None and constant_of(maker.arguments.get("mixed_precision")) == "fp16":
        node = maker.nodes.get("mixed_precision", maker.node)
        place = (run.location(maker.module, node, "needs a scaled loss"),)
        return Severity.WARNING, "the loss is not scaled for fp16, and small gradients become 0", place
    return Severity.INFO, "accumulation, fp16 scaling and DeepSpeed, if the launch uses them, are skipped", ()


def _called(made: Event, event: Event) -> str:
    """How the Accelerator is called where the backward stands; empty when nobody knows."""
    node = made.node.func if isinstance(made.node, ast.Call) else None
    owner = node.value if isinstance(node, ast.Attribute) else None
    if not isinstance(owner, ast.Name) or made.module is not event.module:
        return ""
    scopes = [function_of(event.module, place) for place in (made.node, event.node)]
    is_here = scopes[0] is scopes[1] or scopes[0] is event.module.tree
    return owner.id if is_here else ""


_TRAIN = """\
import torch
from accelerate import Accelerator


def train(model, loader):
    accelerator = Accelerator(%s)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            %s
            optimizer.step()
            optimizer.zero_grad()
"""
_FOUR = "gradient_accumulation_steps=4"

EXAMPLES = (
    bad(
        "four micro batches a step",
        {"train.py": _TRAIN % (_FOUR, "loss.backward()")},
        "train.py:12 warning",
        fixed={"train.py": _TRAIN % (_FOUR, "accelerator.backward(loss)")},
    ),
    bad("fp16", {"train.py": _TRAIN % ('mixed_precision="fp16"', "loss.backward()")}, "train.py:12 warning"),
    bad("nothing says what the launch adds", {"train.py": _TRAIN % ("", "loss.backward()")}, "train.py:12 info"),
    good("the Accelerator runs it", {"train.py": _TRAIN % (_FOUR, "accelerator.backward(loss)")}),
    good("a scaler of the script", {"train.py": _TRAIN % ("", "scaler.scale(loss).backward()")}),
    good(
        "another model, which nobody prepared",
        {"train.py": (_TRAIN % (_FOUR, "loss.backward()")).replace("loss = model", "loss = judge")},
    ),
)
