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

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.source import Location
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.model.script.training.enginewords import ENGINE_WORDS
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.snippets import TWO_ARMS
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL219",
    name="clip-grad-with-engine",
    kind="script",
    severity=Severity.ERROR,
    summary="gradients are clipped after ZeRO has moved them elsewhere",
    markers=(r"clip_grad_", rf"{ENGINE_WORDS}|\.prepare\("),
    references=("https://www.deepspeed.ai/docs/config-json/#gradient-clipping",),
    depends_on_run=True,
)

_CLIPS = frozenset(
    f"torch.nn.utils.{module}{name}"
    for module in ("", "clip_grad.")
    for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")
)
# The norm of an engine, or of its optimizer under ZeRO and fp16.
_ENGINE_NORMS = frozenset({"get_global_grad_norm", "scaled_global_norm", "_global_grad_norm"})
_INSIDE = ("engine", "engine_module")
_PREPARED = ("prepared_model", "prepared_module")

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


def precheck(tree: ast.Module) -> bool:
    """A call clips."""
    return any(call_name(call).startswith("clip_grad_") for call in flat(tree).nodes(ast.Call))


class Check(ScriptCheck):
    """Looks at the parameters of every clipping call."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the parameters are certainly those of an engine."""
        if not self.ctx.called(node).startswith("clip_grad_") or self.ctx.qualified_name(node.func) not in _CLIPS:
            return
        given = self.ctx.argument(node, "parameters", 0)
        owner = _owner(given)
        kind = self.ctx.kind(owner) if owner is not None else ""
        here = self.ctx.zero.at(node)
        if given is None or owner is None or here.stage == 0 or not here.may_be(1, 2, 3):
            return
        is_known = here.is_among(1, 2, 3)
        if kind not in _INSIDE and not (kind in _PREPARED and is_known):
            return
        if kind in _INSIDE and not self._trains():
            return
        if not is_known and self._is_other_arm(node):
            return
        text = self.ctx.text(owner)
        stage = f"ZeRO stage {here.stage}" if here.stage is not None else "ZeRO"
        self.report(
            node,
            f"`{last_name(node.func)}` on the parameters of `{text}` clips nothing under {stage}: the gradients have "
            "left them when `backward` returns, and the norm is 0.0",
            hint='Set `"gradient_clipping"` in the DeepSpeed config'
            if kind in _INSIDE
            else "Call `accelerator.clip_grad_norm_`, and set `gradient_clipping` in the DeepSpeed config",
            related=self._related(node, owner),
            severity=Severity.ERROR if is_known else Severity.WARNING,
            facts={"stage": here.stage},
        )

    def _is_other_arm(self, node: cst.Call) -> bool:
        """``if fp32: clip else: optimizer.scaled_global_norm()``: the norm of the engine is for ZeRO."""
        for outer in self.ctx.tree.parents(node):
            if isinstance(outer, cst.FunctionDef):
                break
            if isinstance(outer, cst.If) and outer.orelse is not None:
                arm = outer.orelse if self.ctx.tree.contains(outer.body, node) else outer.body
                if any(
                    isinstance(n, cst.Attribute) and n.attr.value in _ENGINE_NORMS for n in self.ctx.descendants(arm)
                ):
                    return True
        return False

    def _trains(self) -> bool:
        """An engine steps in this file: what is clipped is not another use of the model."""
        return bool(self.ctx.training.methods("engine", "step") or self.ctx.training.methods("engine", "backward"))

    def _related(self, node: cst.Call, owner: cst.BaseExpression) -> tuple[Location, ...]:
        maker = self.ctx.objects.taken(owner) or self.ctx.objects.made(owner)
        made = (self.ctx.location(maker, "the engine is made here"),) if maker is not None else ()
        return (*made, *self.ctx.zero.origins(self.ctx.zero.at(node)))


def _owner(given: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """The model of `model.parameters()`, also in `filter(..., model.parameters())` and comprehensions over it."""
    if isinstance(given, cst.Call) and isinstance(given.func, cst.Attribute):
        return given.func.value if given.func.attr.value == "parameters" else None
    if isinstance(given, cst.Call) and last_name(given.func) in ("filter", "list", "tuple") and given.args:
        return _owner(given.args[-1].value)
    if isinstance(given, cst.GeneratorExp | cst.ListComp):
        return _owner(given.for_in.iter)
    return None
