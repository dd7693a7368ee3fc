"""Gradients are cleared after each micro batch although the engine accumulates several.

**What.** `engine.zero_grad()` or `optimizer.zero_grad()` in the loop over micro batches of a DeepSpeed engine whose
config accumulates more than one of them.

**Why it hurts.** At stage 0 the gradients of all micro batches but the last are lost: the run trains on a fraction of
its data and nothing raises. Under ZeRO the gradients are kept elsewhere and the call does nothing.

**Fix.** Delete it: `engine.step()` clears the gradients when it has used them.

**When it stays quiet.** Accumulation of 1, or of a number that nobody states; a call behind a test of the boundary or
of a remainder; the arm without an engine; optimizers that accelerate prepared, which know when to clear.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8, two micro batches a step: stage 0 ends with other weights, stage 2 does
not.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.source import labelled
from dslint.model.script.quick import flat
from dslint.model.script.training.enginewords import ENGINE, method_calls
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL220",
    name="zero-grad-misplaced-with-engine",
    kind="script",
    severity=Severity.WARNING,
    summary="gradients are cleared after each of the micro batches that a DeepSpeed engine accumulates",
    markers=(r"\.zero_grad\(", *ENGINE),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/6554",),
    depends_on_run=True,
)

_OWNED = ("engine", "client_optimizer", "ds_optimizer", "engine_module")
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


def precheck(tree: ast.Module) -> bool:
    """Something is cleared in a file with a backward of an engine."""
    nodes = flat(tree)
    return any(call.args for _, call in method_calls(nodes, "backward"))


class Check(ScriptCheck):
    """Looks at every `zero_grad`."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on one that each micro batch reaches."""
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "zero_grad":
            return
        steps = self.ctx.accumulation.steps
        if steps.get_or(1) <= 1 or not self.ctx.loops(node) or self.ctx.kind(node.func.value) not in _OWNED:
            return
        backward = self.ctx.training.beside(node, "engine", "backward")
        if not backward or not self.ctx.training.beside(node, "engine", "step") or not self._runs_with(node, backward):
            return
        stage = self.ctx.zero.at(node).stage
        is_lost = stage == 0
        what = (
            "the gradients of all but the last are lost"
            if is_lost
            else "at stage 0 the gradients of all but the last are lost, under ZeRO it does nothing"
        )
        self.report(
            node,
            f"`{self.ctx.text(node.func)}()` runs after each of the {steps.get()} micro batches of a step: {what}",
            hint="Delete it: `engine.step()` clears the gradients when it has used them",
            related=labelled(steps.origins, "accumulates"),
            severity=Severity.WARNING if is_lost else Severity.INFO,
            facts={"stage": stage, "gas": steps.get()},
        )

    def _runs_with(self, node: cst.Call, backward: list[cst.Call]) -> bool:
        """No test stands before it that does not stand before the backward."""
        return any(self.ctx.implies(call, node) for call in backward)
