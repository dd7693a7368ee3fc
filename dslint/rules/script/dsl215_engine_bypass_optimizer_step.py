"""An optimizer steps behind the back of a DeepSpeed engine.

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

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.model.script.training.enginewords import ENGINE, steps_another
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.snippets import TWO_ARMS
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL215",
    name="engine-bypass-optimizer-step",
    kind="script",
    severity=Severity.ERROR,
    summary="an optimizer that a DeepSpeed engine owns is stepped by the script",
    fix="safe",
    markers=(r"\.step\(", *ENGINE),
    references=(
        "https://www.deepspeed.ai/getting-started/#training",
        "DeepSpeedEngine._take_model_step in deepspeed/runtime/engine.py",
    ),
    depends_on_run=True,
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

precheck = steps_another


class Check(ScriptCheck):
    """Looks at every `.step()` of an optimizer."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on a step of an optimizer that certainly belongs to an engine."""
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "step":
            return
        optimizer = node.func.value
        kind = self.ctx.kind(optimizer)
        if kind not in ("client_optimizer", "ds_optimizer"):
            return
        if self.ctx.training.has_other_arm(node, "step"):
            return  # ``if args.deepspeed: engine.step()``, ``else: optimizer.step()``
        maker = self.ctx.objects.taken(optimizer) if kind == "client_optimizer" else self.ctx.objects.made(optimizer)
        stage = self.ctx.zero.at(node).stage
        is_both = self._engine_steps_too(node, maker)
        found = _judged(kind, stage, is_both)
        if found is None or (is_both and not self._is_before(node) and kind == "client_optimizer"):
            return
        severity, what = found
        if isinstance(optimizer, cst.Attribute) and self.ctx.kind(optimizer.value) == "engine" and not is_both:
            severity = Severity.INFO  # ``engine.optimizer.step()``: somebody meant it
        text = self.ctx.text(optimizer)
        related = (self.ctx.location(maker, "the engine is made here"),) if maker is not None else ()
        engine = (self._engine_name(maker) if maker is not None else "") or "engine"
        self.report(
            node,
            what.format(name=f"`{text}.step()`"),
            hint=f"Remove it: `{engine}.step()` does the step" if is_both else f"Call `{engine}.step()` instead",
            related=related,
            severity=severity,
            fix=None if is_both else self._fix(node, optimizer, maker),
            facts={"who": "client" if kind == "client_optimizer" else "returned", "stage": stage, "both": is_both},
        )

    def _engine_steps_too(self, node: cst.Call, maker: cst.Call | None) -> bool:
        beside = self.ctx.training.beside(node, "engine", "step")
        return any(self.ctx.objects.made(_receiver(call)) in (maker, None) for call in beside)

    def _is_before(self, node: cst.Call) -> bool:
        beside = self.ctx.training.beside(node, "engine", "step")
        return any(self.ctx.tree.position(node) < self.ctx.tree.position(call) for call in beside)

    def _fix(self, node: cst.Call, optimizer: cst.BaseExpression, maker: cst.Call | None) -> Fix | None:
        """`engine.step()`, where the engine is a variable of the same function and nothing else was bound to it."""
        if maker is None or node.args or self.ctx.tree.function(maker) is not self.ctx.tree.function(node):
            return None
        name = self._engine_name(maker)
        bound = self.ctx.names.bindings(name, node) if name else []
        if len(bound) != 1 or not self.ctx.tree.contains(self.ctx.tree.parent(maker) or maker, bound[0].node):
            return None
        return Fix("Let the engine step", (Edit(self.ctx.doc.path, self.ctx.span(optimizer), name),), Safety.SAFE)

    def _engine_name(self, maker: cst.Call) -> str:
        statement = self.ctx.parent(maker)
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            return ""
        target = statement.targets[0].target
        first = target.elements[0].value if isinstance(target, cst.Tuple | cst.List) and target.elements else None
        return first.value if isinstance(first, cst.Name) and first.value != "_" else ""


def _receiver(call: cst.Call) -> cst.BaseExpression:
    return call.func.value if isinstance(call.func, cst.Attribute) else call.func


def _judged(kind: str, stage: int | None, is_both: bool) -> tuple[Severity, str] | None:
    """How bad the step is, and what it does; `None` where it does nothing."""
    if kind == "client_optimizer":
        if is_both:
            twice = "{name} before `engine.step()` moves the weights twice in each step at stage 0"
            return (Severity.ERROR, twice) if stage == 0 else None
        if stage == 0:
            return Severity.WARNING, (
                "{name} steps the optimizer that the engine owns: the engine counts no step, so that accumulation, "
                "clipping and the schedule are passed over"
            )
        return Severity.ERROR, (
            "{name} steps the optimizer that was handed to `deepspeed.initialize`: under ZeRO the weights never move, "
            "since only `engine.step()` fills what it holds"
        )
    if is_both:
        raises = "{name} beside `engine.step()` raises `TypeError` under ZeRO: the gradients are gone by then"
        severity = Severity.ERROR if stage in (1, 2, 3) else Severity.WARNING
        return (severity, raises) if stage != 0 else None
    return Severity.WARNING, (
        "{name} steps the optimizer of the engine without the engine, which counts no step: its accumulation, its "
        "schedule and its checkpoints know nothing of this one"
    )
