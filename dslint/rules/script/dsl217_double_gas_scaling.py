"""The loss is divided by the accumulation steps twice.

**What.** The script divides the loss by the number of accumulated micro batches and then hands it to `engine.backward`
or `accelerator.backward`, which divide it too.

**Why it hurts.** The gradient is too small by the number of micro batches. SGD then learns that much slower; with Adam
it shows only where gradients are clipped or compared with epsilon, so the run looks fine and differs from the paper.

**Fix.** Hand over the loss as it is, or, with DeepSpeed, `engine.backward(loss, scale_wrt_gas=False)`. The fix removes
a division that stands inside the call.

**When it stays quiet.** Accumulation of 1, or of a number that neither the configs of the run nor the file tell; a
divided copy for the log; `scale_wrt_gas=False`; a division in an arm that does not lead to the call; an `Accelerator`
without `gradient_accumulation_steps`.

**Evidence.** Two gloo ranks, two micro batches a step, SGD: stages 0, 2 and 3 of DeepSpeed 0.19.8 end with other
weights than the undivided loss, and accelerate 1.15 with gradients of half the size.
https://github.com/deepspeedai/DeepSpeed/issues/7439, https://github.com/huggingface/accelerate/issues/1773
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Location, labelled
from dslint.model.script.quick import flat
from dslint.model.script.training.enginewords import ENGINE_WORDS, method_calls
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL217",
    name="double-gas-scaling",
    kind="script",
    severity=Severity.WARNING,
    summary="the loss is divided by the accumulation steps, and the library divides it again",
    fix="unsafe",
    markers=(r"\.backward\(\s*[^)\s]", rf"{ENGINE_WORDS}|Accelerator", r"\w\)? */=? *[\w(]"),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/7439",
        "https://github.com/huggingface/accelerate/issues/1773",
        "DeepSpeedEngine.backward in deepspeed/runtime/engine.py",
    ),
    depends_on_run=True,
)

_COUNTS = re.compile(r"accum|\bgas\b", re.I)
_ENGINE = """\
import deepspeed


def train(args, model, loader):
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "optimizer": {"type": "Adam"},
    }
    engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    for batch in loader:
        loss = engine(batch)
%s
        engine.step()
"""
_DIVIDED = """\
        if args.gradient_accumulation_steps > 1:
            loss = loss / args.gradient_accumulation_steps
        engine.backward(loss)"""
_ACCELERATE = """\
import torch
from accelerate import Accelerator


def train(model, loader):
    accelerator = Accelerator(gradient_accumulation_steps=%s)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(%s)
            optimizer.step()
            optimizer.zero_grad()
"""

EXAMPLES = (
    bad("divided by what the config states as well", {"train.py": _ENGINE % _DIVIDED}, "train.py:15"),
    bad(
        "divided for accelerate",
        {"train.py": _ACCELERATE % ("4", "model(**batch).loss / 4")},
        "train.py:10",
        fixed={"train.py": _ACCELERATE % ("4", "model(**batch).loss")},
    ),
    bad(
        "the config file accumulates",
        {
            "train.py": """\
import deepspeed


def train(model, loader, gas):
    engine, _, _, _ = deepspeed.initialize(model=model, config="ds.json")
    for batch in loader:
        engine.backward(engine(batch) / gas)
        engine.step()
""",
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8}\n',
        },
        "train.py:7",
    ),
    bad(
        "divided by what the engine says",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        loss = engine(batch)
        loss = loss / engine.gradient_accumulation_steps()
        engine.backward(loss)
        engine.step()
"""
        },
        "train.py:9",
    ),
    good("divided for the log", {"train.py": _ENGINE % _DIVIDED.replace("loss =", "logged =")}),
    good(
        "the engine is told not to",
        {"train.py": _ENGINE % _DIVIDED.replace("backward(loss)", "backward(loss, scale_wrt_gas=False)")},
    ),
    good("accelerate does not accumulate", {"train.py": _ACCELERATE % ("1", "model(**batch).loss / 4")}),
    good("a mean over tokens", {"train.py": _ACCELERATE % ("4", "model(**batch).loss / batch['tokens']")}),
    good(
        "the arm without an engine",
        {
            "train.py": _ENGINE
            % """\
        if not args.deepspeed:
            loss = loss / args.gradient_accumulation_steps
        if args.deepspeed:
            engine.backward(loss)"""
        },
    ),
)


def precheck(tree: ast.Module) -> bool:
    """Something is divided, and something has a backward with a loss."""
    nodes = flat(tree)
    divided = any(isinstance(n.op, ast.Div) for n in nodes.nodes(ast.BinOp))
    divided = divided or any(isinstance(n.op, ast.Div) for n in nodes.nodes(ast.AugAssign))
    return divided and any(call.args for _, call in method_calls(nodes, "backward"))


class Check(ScriptCheck):
    """Looks at the loss of every `backward` of an engine or accelerator."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the loss was divided by the number by which the library divides it."""
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "backward" or not node.args:
            return
        owner = node.func.value
        kind = self.ctx.kind(owner)
        loss = self.ctx.argument(node, "loss", 0)
        if (
            kind not in ("engine", "accelerator")
            or loss is None
            or self.ctx.argument(node, "scale_wrt_gas") is not None
            or self.ctx.has_unpacked_arguments(node)
        ):
            return
        for division, divisor in self.ctx.training.divisions(loss):
            place = self._counted(kind, owner, divisor)
            if place is not None and self._leads_to(division, node):
                self._report(node, loss, division, divisor, place)
                return

    def _counted(
        self, kind: str, owner: cst.BaseExpression, divisor: cst.BaseExpression
    ) -> tuple[Location, ...] | None:
        """Where the library is told to divide by the same number; `None` when it is not, or nobody knows."""
        if kind == "accelerator":
            made = self.ctx.objects.made(owner)
            stated = self.ctx.argument(made, "gradient_accumulation_steps", 3) if made is not None else None
            return self._same(divisor, [stated]) if stated is not None else None
        steps = self.ctx.accumulation.steps
        if steps.is_known:
            same = self.ctx.training.counts_micro_batches(divisor) or self._value(divisor) == steps.get()
            return labelled(steps.origins, "accumulates") if same and steps.get() > 1 else None
        if self.ctx.training.is_the_engines_count(divisor):
            return ()
        return self._same(divisor, self.ctx.accumulation.expressions)

    def _same(self, divisor: cst.BaseExpression, stated: list[cst.BaseExpression]) -> tuple[Location, ...] | None:
        for expression in stated:
            value = self._value(expression)
            by_name = self.ctx.text(expression) == self.ctx.text(divisor) and value != 1
            counted = self.ctx.training.counts_micro_batches(divisor) or self._value(divisor) == value
            if by_name and isinstance(divisor, cst.Name | cst.Attribute | cst.Call):
                return (self.ctx.location(expression, "the library divides by it as well"),)
            if isinstance(value, int) and value > 1 and counted:
                return (self.ctx.location(expression, "the library divides by it as well"),)
        return None

    def _value(self, node: cst.BaseExpression) -> object:
        return self.ctx.constant(node).get_or(None)

    def _leads_to(self, division: cst.CSTNode, backward: cst.Call) -> bool:
        """What the backward gets is divided: in all its arms, or where there is more than one micro batch."""
        if self.ctx.implies(backward, division):
            return True
        if self.ctx.excludes(backward, division):
            return False
        conditions = self.ctx.objects.conditions
        here = {c.text for c in conditions.of(backward)}
        return all(_COUNTS.search(c.text) for c in conditions.of(division) if c.text not in here)

    def _report(
        self,
        node: cst.Call,
        loss: cst.BaseExpression,
        division: cst.CSTNode,
        divisor: cst.BaseExpression,
        place: tuple[Location, ...],
    ) -> None:
        called = self.ctx.text(node.func)
        is_engine = isinstance(node.func, cst.Attribute) and self.ctx.kind(node.func.value) == "engine"
        related = () if division is loss else (self.ctx.location(division, "divided here"),)
        self.report(
            node,
            f"`{called}` divides the loss by the accumulation steps, and so did the script, by "
            f"`{self.ctx.text(divisor)}`: the gradient is too small by that factor",
            hint="Hand over the loss as it is, and divide only what is logged",
            related=(*related, *place),
            fix=self._fix(loss, division),
            facts={"stage": self.ctx.stage, "library": "deepspeed" if is_engine else "accelerate"},
        )

    def _fix(self, loss: cst.BaseExpression, division: cst.CSTNode) -> Fix | None:
        if division is not loss or not isinstance(loss, cst.BinaryOperation) or loss.lpar:
            return None
        edit = Edit(self.ctx.doc.path, self.ctx.span(loss), self.ctx.text(loss.left))
        return Fix("Hand over the loss as it is", (edit,), Safety.UNSAFE)
