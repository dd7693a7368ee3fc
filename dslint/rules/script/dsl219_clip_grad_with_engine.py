"""Gradients of a DeepSpeed engine are clipped by hand.

**What.** `torch.nn.utils.clip_grad_norm_(engine.parameters(), ...)`, or of the module inside the engine, or of a model
that accelerate prepared for DeepSpeed.

**Why it hurts.** Under ZeRO the gradients have left the parameters when `backward` returns: the call sees none,
returns the norm 0.0 and clips nothing. Training runs without the clipping that somebody relied on; nothing raises.

**Fix.** `"gradient_clipping": 1.0` in the DeepSpeed config, and `engine.get_global_grad_norm()` for the log. With
accelerate, `accelerator.clip_grad_norm_(...)` says what the engine does.

**When it stays quiet.** Stage 0, where the gradients are still there; `accelerator.clip_grad_norm_`; the arm without
an engine; the other arm of one that asks the engine for its norm, while nobody states the stage; a model that
accelerate prepared, unless the run is known to use ZeRO. When nobody states the stage it is a warning.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8, stages 1, 2 and 3: `clip_grad_norm_` returns 0.0 and the weights are
those without clipping; at stage 0 they are those of `gradient_clipping`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.python.values import Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TWO_ARMS
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances, wrapped_by
from dslint.rules.training.training import arms_of, asks_for_stage, excludes, first_of, parameter_owners, stage_at

META = RuleMeta(
    code="DSL219",
    name="clip-grad-with-engine",
    kind="script",
    severity=Severity.ERROR,
    summary="gradients are clipped after ZeRO has moved them elsewhere",
    markers=(r"deepspeed|accelerat",),
    references=("https://www.deepspeed.ai/docs/config-json/#gradient-clipping",),
    depends_on_run=True,
)


@dataclass(slots=True)
class _Models:
    """The models of engines in a run, and those that accelerate prepared, by where that happened."""

    inside: dict[Instance, Happening]
    prepared: dict[Instance, Happening]


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call that clips gradients of parameters which are certainly those of an engine."""
    models = _models(run)
    owners = parameter_owners(run) if models.inside or models.prepared else {}
    seen: set[int] = set()
    for found in run.occurrences("clip-grad") if owners else ():
        event = found.event
        given = event.arguments.get("parameters")
        if event.receiver is not None or "collective" in event.tags or given is None or id(event.node) in seen:
            continue
        told = _judged(run, found, _owners(given, event, owners), models)
        if told is not None:
            seen.add(id(event.node))
            yield told


def _models(run: RunQuery) -> _Models:
    found = _Models({}, {})
    for made in run.occurrences("makes-engine"):
        for atom in (*first_of(made.event.result), *instances(made.event.arguments.get("model"))):
            found.inside.setdefault(atom, made)
    for made in run.occurrences("prepares"):
        for inner, outer in wrapped_by(made.event):
            for atom in (*instances(inner), *instances(outer)):
                found.prepared.setdefault(atom, made)
    return found


def _owners(given: Value, event: Event, owners: dict[ast.AST, list[Instance]]) -> list[Instance]:
    """Return the models of the parameters, also of `filter(..., model.parameters())` and lists of them."""
    places = [*(atom.node for atom in instances(given)), event.nodes.get("parameters")]
    calls = {id(n): n for place in places if isinstance(place, ast.expr) for n in ast.walk(place) if n in owners}
    return [atom for call in calls.values() for atom in owners[call]]


def _judged(run: RunQuery, found: Happening, models: list[Instance], known: _Models) -> Finding | None:
    """Return the finding for gradients of these models; `None` where they may be reduced, or lie where they were."""
    is_inside = bool(models) and all(atom in known.inside for atom in models)
    if not models or not (is_inside or all(atom in known.prepared for atom in models)):
        return None
    made = (known.inside if is_inside else known.prepared)[models[0]]
    stage = stage_at(run, made.event)
    if stage == 0 or (stage is None and (not is_inside or asks_for_stage(found))):
        return None
    if is_inside and not run.has("engine-step", "engine-backward"):
        return None  # what is clipped is not another use of the model
    tags = {e_tag for arm in arms_of(found) for e in events(arm.block) for e_tag in e.tags}
    if tags & {"engine-step", "engine-backward"} or excludes(made, found):
        return None
    if stage is None and "gradient-norm" in tags:
        return None  # ``if fp32: clip else: optimizer.scaled_global_norm()``: the norm of the engine is for ZeRO
    return _finding(run, found.event, made.event, stage, is_inside)


def _finding(run: RunQuery, event: Event, made: Event, stage: int | None, is_inside: bool) -> Finding:
    node, named = event.node, event.nodes.get("parameters")
    owner = named.func.value if isinstance(named, ast.Call) and isinstance(named.func, ast.Attribute) else None
    what = f"the parameters of `{run.text(event.module, owner)}`" if owner is not None else "these parameters"
    origins = run.context.zero_stage.origins
    return run.finding(
        META,
        event.module,
        node,
        f"`{event.api.rpartition('.')[2]}` on {what} clips nothing under"
        f" {'ZeRO' if stage is None else f'ZeRO stage {stage}'}: the gradients are gone after `backward`",
        hint='Set `"gradient_clipping"` in the DeepSpeed config'
        if is_inside
        else "Call `accelerator.clip_grad_norm_`, and set `gradient_clipping` in the DeepSpeed config",
        related=(
            run.location(made.module, made.node, "the engine is made here"),
            *(place.labelled(place.label or "ZeRO stage") for place in origins),
        ),
        severity=Severity.WARNING if stage is None else Severity.ERROR,
        facts={"stage": stage},
    )


_HEAD = """\
import deepspeed
from torch.nn.utils import clip_grad_norm_

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 2}}


def train(model, loader):
    engine, _, _, _ = deepspeed.initialize(model=model, config=CONFIG)
    for batch in loader:
        engine.backward(engine(batch))
"""
_STEP = "        engine.step()\n"
_CLIP = "        clip_grad_norm_(engine.parameters(), 1.0)\n"

EXAMPLES = (
    bad("the parameters of the engine", {"train.py": _HEAD + _CLIP + _STEP}, "train.py:11 error"),
    bad(
        "the parameters of the model inside, and nobody states the stage",
        {
            "train.py": """\
import deepspeed
import torch


class Trainer:
    def __init__(self, args, model):
        self.args = args
        self.model, _, _, _ = deepspeed.initialize(args=args, model=model)

    def step(self, batch):
        self.model.backward(self.model(batch))
        torch.nn.utils.clip_grad_norm_(self.model.module.parameters(), self.args.clip)
        self.model.step()
"""
        },
        "train.py:12 warning",
    ),
    good(
        "the config clips",
        {"train.py": (_HEAD + _STEP).replace('"stage": 2}}', '"stage": 2}, "gradient_clipping": 1.0}')},
    ),
    good(
        "an arm for fp32 without ZeRO beside the one that asks the optimizer of the engine",
        {
            "train.py": """\
import deepspeed
import torch


def train(args, model, loader):
    engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        engine.backward(engine(batch))
        if args.fp32:
            norm = torch.nn.utils.clip_grad_norm_(engine.parameters(), args.clip)
        else:
            norm = optimizer.scaled_global_norm() / optimizer.cur_scale
        engine.step()
        print(norm)
"""
        },
    ),
    good("stage 0", {"train.py": (_HEAD + _CLIP + _STEP).replace('"stage": 2', '"stage": 0')}),
    good(
        "accelerate tells the engine",
        {
            "train.py": """\
import torch
from accelerate import Accelerator


def train(model, loader):
    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
"""
        },
    ),
    good(
        "the arm without an engine",
        {
            "train.py": "import torch\n"
            + TWO_ARMS.replace(
                "            optimizer.step()",
                "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n            optimizer.step()",
            )
        },
    ),
)
