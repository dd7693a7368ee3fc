"""An optimizer steps without the knowledge of a DeepSpeed engine.

**What.** The script steps an optimizer itself although a DeepSpeed engine owns it: the optimizer that was handed to
`deepspeed.initialize(optimizer=...)`, or the one that came back as its second result.

**Why it hurts.** Under ZeRO the optimizer of the client holds parts that the engine fills only in its own step:
`optimizer.step()` does nothing, the loss stays flat, and nothing raises. At stage 0, and for the optimizer that came
back, the weights move, but the engine counts no step: accumulation, clipping, the schedule and checkpoints go wrong.
Beside `engine.step()` the second step raises `TypeError` under ZeRO, and at stage 0 moves the weights twice.

**Fix.** `engine.step()` alone. The fix writes it where the engine has a name there.

**When it stays quiet.** The other arm of a test that makes or steps the engine (`if args.deepspeed: engine.step()`,
`else: optimizer.step()`); variables that may hold an optimizer of another kind; optimizers that accelerate prepared
(their `step` is right); an optimizer of the client that steps beside `engine.step()` under ZeRO, where it does
nothing. `engine.optimizer.step()`, which nobody writes by mistake, is an information.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8: `client.step()` at stages 1, 2 and 3 leaves all weights as they were;
at stage 0, and for the returned optimizer at stages 0, 2 and 3, the engine counts 0 steps; with accumulation the
returned optimizer raises `KeyError`; both steps raise `TypeError` at stage 2 and do no harm at stage 0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.python.events import Event
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TWO_ARMS
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import asks_for_stage, beside, excludes, has_other_arm, owned_by, stage_at
from dslint.rules.zero.enginenames import target_of, variable_of

META = RuleMeta(
    code="DSL215",
    name="engine-bypass-optimizer-step",
    kind="script",
    severity=Severity.ERROR,
    summary="an optimizer that a DeepSpeed engine owns is stepped by the script",
    fix="safe",
    markers=(r"deepspeed",),
    references=(
        "https://www.deepspeed.ai/getting-started/#training",
        "DeepSpeedEngine._take_model_step in deepspeed/runtime/engine.py",
    ),
    depends_on_run=True,
)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of an optimizer that an engine owns: handed over by the script, or come back."""

    found: Happening
    maker: Event
    is_client: bool

    @property
    def text(self) -> str:
        """Return how the optimizer is called."""
        node = self.found.event.node
        value = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
        return " ".join(self.found.event.module.text(value).split())


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each step of an optimizer that certainly belongs to an engine."""
    owned = owned_by(run, "optimizer", 1)
    engines = _texts(run) if owned else frozenset()
    seen: set[int] = set()
    for found in run.occurrences("optimizer-step") if owned else ():
        event = found.event
        owners = [owned[atom] for atom in instances(event.receiver) if atom in owned]
        is_sure = event.receiver is not None and len(owners) == len(event.receiver.atoms) > 0
        if not is_sure or "engine-step" in event.tags or id(event.node) in seen or excludes(owners[0].made, found):
            continue
        if has_other_arm(found, "step", "engine-step", "optimizer-step") or (
            run.stage is None and asks_for_stage(found)
        ):
            continue
        told = _finding(run, _Step(found, owners[0].maker, owners[0].is_client), engines)
        if told is not None:
            seen.add(id(event.node))
            yield told


def _texts(run: RunQuery) -> frozenset[str]:
    """Return how the engines of a run are called in the code."""
    found = set()
    for event in (e.event for e in run.happenings("engine-step", "engine-backward", "engine-forward")):
        node = event.node.func if isinstance(event.node, ast.Call) else event.node
        name = event.api.rpartition(".")[2]
        found.add(event.module.text(node.value if isinstance(node, ast.Attribute) and node.attr == name else node))
    return frozenset(found)


def _finding(run: RunQuery, step: _Step, engines: frozenset[str]) -> Finding | None:
    event = step.found.event
    stage = stage_at(run, step.maker)
    both = [e for e in beside(step.found, "engine-step") if _is_of(run, e, step.maker)]
    judged = _judged("client" if step.is_client else "returned", stage, bool(both))
    if judged is None or (both and step.is_client and not _is_before(step.found, both)):
        return None
    severity, what = judged
    made = target_of(step.maker, step.maker.module.tree)
    named = engines | {step.maker.module.text(made)} if made is not None else engines
    if step.text.rpartition(".")[0] in named and not both:
        severity = Severity.INFO  # ``engine.optimizer.step()``: somebody meant it
    name = variable_of(step.maker, event.node) if step.maker.module is event.module else ""
    engine = name or "engine"
    return run.finding(
        META,
        event.module,
        event.node,
        what.format(name=f"`{step.text}.step()`"),
        hint=f"Remove it: `{engine}.step()` does the step" if both else f"Call `{engine}.step()` instead",
        related=(run.location(step.maker.module, step.maker.node, "the engine is made here"),),
        severity=severity,
        fix=None if both else _fix(run, event, name),
        facts={"who": "client" if step.is_client else "returned", "stage": stage, "both": bool(both)},
    )


def _is_of(run: RunQuery, event: Event, maker: Event) -> bool:
    found = instances(event.receiver)
    return any(run.makers.get(atom) is maker for atom in found if isinstance(atom, Instance))


def _is_before(found: Happening, others: list[Event]) -> bool:
    together = [*beside(found, "optimizer-step")]
    at = next((n for n, event in enumerate(together) if event is found.event), 0)
    return any(event is other for event in together[at:] for other in others)


def _fix(run: RunQuery, event: Event, engine: str) -> Fix | None:
    """`engine.step()`, where the engine is a variable of the same function and nothing else was bound to it."""
    node = event.node
    if not engine or not isinstance(node, ast.Call) or node.args or node.keywords or event.module.path != run.path:
        return None
    if not isinstance(node.func, ast.Attribute):
        return None
    edit = Edit(run.path, event.module.span(node.func.value), engine)
    return Fix("Let the engine step", (edit,), Safety.SAFE)


def _judged(kind: str, stage: int | None, is_both: bool) -> tuple[Severity, str] | None:
    """How bad the step is, and what it does; `None` where it does nothing."""
    if kind == "client":
        if is_both:
            twice = "{name} before `engine.step()` moves the weights twice per step at stage 0"
            return (Severity.ERROR, twice) if stage == 0 else None
        if stage == 0:
            return Severity.WARNING, (
                "{name} bypasses the DeepSpeed engine, which owns this optimizer: accumulation, clipping and schedule "
                "miss this step"
            )
        return Severity.ERROR, (
            "{name} bypasses the DeepSpeed engine: under ZeRO the weights never move, since only `engine.step()` "
            "updates them"
        )
    if is_both:
        raises = "{name} beside `engine.step()` raises `TypeError` under ZeRO: the gradients are gone by then"
        severity = Severity.ERROR if stage in (1, 2, 3) else Severity.WARNING
        return (severity, raises) if stage != 0 else None
    return Severity.WARNING, (
        "{name} bypasses the DeepSpeed engine: accumulation, schedule and checkpoints miss this step"
    )


_HEAD = """\
import deepspeed
import torch


def train(args, model, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
"""
_CLIENT = (
    _HEAD
    + """\
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)
    for batch in loader:
        engine.backward(engine(batch))
        %s.step()
"""
)
_RETURNED = (
    _HEAD
    + """\
    engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)
    for batch in loader:
        engine.backward(engine(batch))
        %s.step()
"""
)
EXAMPLES = (
    bad(
        "the optimizer that was handed over",
        {"train.py": _CLIENT % "optimizer"},
        "train.py:10 error",
        fixed={"train.py": _CLIENT % "engine"},
    ),
    bad(
        "the optimizer that came back",
        {"train.py": _RETURNED % "optimizer"},
        "train.py:10 warning",
        fixed={"train.py": _RETURNED % "engine"},
    ),
    good("the engine steps", {"train.py": _CLIENT % "engine"}),
    good(
        "the other arm steps the engine",
        {
            "train.py": _HEAD
            + """\
    model, optimizer, _, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)
    for batch in loader:
        loss = model(batch)
        if args.deepspeed:
            model.backward(loss)
            model.step()
        else:
            optimizer.zero_grad()
            optimizer.step()
"""
        },
    ),
    good("the other arm has no engine", {"train.py": TWO_ARMS}),
    good(
        "the other arm has no engine, and the optimizer is not rebound",
        {"train.py": TWO_ARMS.replace("model, optimizer, _, _", "model, _, _, _")},
    ),
    good(
        "an optimizer that accelerate prepared",
        {
            "train.py": """\
import torch
from accelerate import Accelerator


def train(model, loader):
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
        },
    ),
    good(
        "a second optimizer that no engine owns",
        {
            "gan.py": """\
import deepspeed
import torch


def train(args, generator, judge, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=generator)
    other = torch.optim.Adam(judge.parameters())
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()
        judge(batch).backward()
        other.step()
"""
        },
    ),
)
