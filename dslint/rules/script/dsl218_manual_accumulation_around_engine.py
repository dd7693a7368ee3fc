"""The script steps a DeepSpeed engine on every n-th micro batch only.

**What.** `engine.backward(loss)` for every micro batch, but `engine.step()` only `if (step + 1) % n == 0`.

**Why it hurts.** The engine counts micro batches by the calls of `step` and accumulates itself. With
`gradient_accumulation_steps` of n in the config it then steps on every n x n-th batch, or on other sums than meant.
With 1 in the config, ZeRO stages 1 and 2 keep the gradients of the last micro batch only: all others are computed and
thrown away, silently. Releases before 0.18.3 raise `TypeError` there.

**Fix.** Call `engine.step()` after every `backward` and set `gradient_accumulation_steps` in the config. Where the
script must decide, `engine.set_gradient_accumulation_boundary(...)` tells the engine.

**When it stays quiet.** `gradient_accumulation_steps` of 1 at stages 0 and 3, where gradients do add up; scripts that
set the boundary; a backward behind the same test (two models that take turns); a step elsewhere in the same loop,
such as `else: engine.step()`, after which the test decides on something else than the step;
`engine.is_gradient_accumulation_boundary()` as the test. When neither stage nor steps are known it is a warning.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8, four micro batches: with 2 in the config and a step on every second,
stages 0, 2 and 3 end with other weights; with 1 in the config, stages 1 and 2 do, stages 0 and 3 are right.
https://github.com/allenai/open-instruct/pull/1498
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.source import Location, labelled
from dslint.model.script.behind import question
from dslint.model.script.quick import flat
from dslint.model.script.training.enginewords import ENGINE, method_calls
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL218",
    name="manual-accumulation-around-engine",
    kind="script",
    severity=Severity.ERROR,
    summary="a DeepSpeed engine is stepped on every n-th micro batch only",
    markers=(r"\.backward\(", r"\.step\(", r"%", *ENGINE),
    references=(
        "https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters",
        "https://github.com/allenai/open-instruct/pull/1498",
    ),
    depends_on_run=True,
)

_BOUNDARY = frozenset({"set_gradient_accumulation_boundary", "is_gradient_accumulation_boundary"})
_TRAIN = """\
import deepspeed

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": %d,
    "optimizer": {"type": "Adam"},
    "zero_optimization": {"stage": %d},
}


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(model=model, config=CONFIG)
    for step, batch in enumerate(loader):
        loss = engine(batch) / args.every
        engine.backward(loss)
        if (step + 1) %% args.every == 0:
            engine.step()
"""

EXAMPLES = (
    bad("the config accumulates as well", {"train.py": _TRAIN % (4, 3)}, "train.py:17 error"),
    bad("stage 2 keeps the last micro batch", {"train.py": _TRAIN % (1, 2)}, "train.py:17 error"),
    bad(
        "nobody states the stage or the steps",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for step, batch in enumerate(loader):
        engine.backward(engine(batch))
        if not (step + 1) % 8:
            engine.step()
"""
        },
        "train.py:9 warning",
    ),
    bad(
        "as often as the engine itself says",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    args.every = engine.gradient_accumulation_steps()
    for step, batch in enumerate(loader):
        engine.backward(engine(batch))
        if (step + 1) % args.every == 0:
            engine.step()
"""
        },
        "train.py:10 warning",
    ),
    good("stage 3 adds them up", {"train.py": _TRAIN % (1, 3)}),
    good(
        "every micro batch",
        {
            "train.py": (_TRAIN % (4, 2))
            .replace("        if (step + 1) % args.every == 0:\n    ", "")
            .replace(" / args.every", "")
        },
    ),
    good(
        "a step in either arm: the test decides on the learning rate",
        {
            "train.py": (_TRAIN % (4, 2)).replace(
                "            engine.step()\n",
                "            args.rate.step()\n            engine.step()\n        else:\n            engine.step()\n",
            )
        },
    ),
    good(
        "the engine is told the boundary",
        {
            "train.py": (_TRAIN % (1, 2)).replace(
                "        engine.backward(loss)\n",
                "        engine.set_gradient_accumulation_boundary((step + 1) % args.every == 0)\n"
                "        engine.backward(loss)\n",
            )
        },
    ),
    good(
        "two engines take turns",
        {
            "gan.py": """\
import deepspeed


def train(args, generator, judge, loader):
    first, _, _, _ = deepspeed.initialize(args=args, model=generator)
    second, _, _, _ = deepspeed.initialize(args=args, model=judge)
    for step, batch in enumerate(loader):
        second.backward(second(batch))
        second.step()
        if step % 5 == 0:
            first.backward(first(batch))
            first.step()
"""
        },
    ),
)


def precheck(tree: ast.Module) -> bool:
    """A test of a remainder has a step behind it."""
    nodes = flat(tree)
    if not any(isinstance(n.op, ast.Mod) for n in nodes.nodes(ast.BinOp)):
        return False
    return any(True for _ in method_calls(nodes, "step")) and any(
        call.args for _, call in method_calls(nodes, "backward")
    )


class Check(ScriptCheck):
    """Looks at the test before every step of an engine."""

    def start(self) -> None:
        """A file that speaks of the boundary tells the engine."""
        self.is_told = (
            any(n.attr.value in _BOUNDARY for n in self.ctx.tree.every(cst.Attribute))
            or "managed_gradient_accumulation" in self.ctx.doc.source.text
        )

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when a remainder decides on the step and not on the backward."""
        called = node.func
        if self.is_told or not isinstance(called, cst.Attribute) or called.attr.value != "step":
            return
        if self.ctx.kind(called.value) != "engine":
            return
        found = self._remainder(node)
        if found is None or not self._has_backward_outside(node, found[0]) or self._steps_otherwise(node, found[0]):
            return
        every = self.ctx.text(found[1])
        severity, what = self._judged(node, found[1])
        if severity is None:
            return
        self.report(
            node,
            f"`{self.ctx.text(called)}()` runs on every `{every}`-th micro batch only, but the engine counts micro "
            f"batches by its calls: {what}",
            hint=f"Call `{self.ctx.text(called)}()` after every `backward` and set `gradient_accumulation_steps` in the"
            " DeepSpeed config",
            related=(self.ctx.location(found[0].test, "this test skips the step"), *self._origins(node)),
            severity=severity,
            facts={"stage": self.ctx.zero.at(node).stage, "gas": self.ctx.accumulation.steps.get_or(None)},
        )

    def _origins(self, node: cst.Call) -> tuple[Location, ...]:
        return (
            *labelled(self.ctx.accumulation.steps.origins, "accumulates"),
            *self.ctx.zero.origins(self.ctx.zero.at(node)),
        )

    def _judged(self, node: cst.Call, every: cst.BaseExpression) -> tuple[Severity | None, str]:
        steps, here = self.ctx.accumulation.steps, self.ctx.zero.at(node)
        if steps.is_known and steps.get() > 1:
            return (
                Severity.ERROR,
                f"with `gradient_accumulation_steps` {steps.get()} it steps less often by that factor",
            )
        if self.ctx.training.is_the_engines_count(every):
            again = "it waits for that many calls itself, and steps less often by that factor"
            return (None if steps.is_known else Severity.WARNING), again
        thrown = "ZeRO stages 1 and 2 keep the gradients of the last micro batch only and throw the others away"
        if here.is_among(1, 2):
            return Severity.ERROR, thrown
        if not here.may_be(1, 2) or here.stage is not None:
            return None, ""
        return Severity.WARNING, f"{thrown}, unless the config accumulates, which then comes on top"

    def _remainder(self, node: cst.Call) -> tuple[cst.If | cst.IfExp, cst.BaseExpression] | None:
        """The `if x % n == 0` around a step, within its loop, with the `n`."""
        loops = self.ctx.loops(node)
        for outer in self.ctx.parents(node) if loops else ():
            if outer is loops[0]:
                return None
            if isinstance(outer, cst.If | cst.IfExp) and not self.ctx.tree.contains(outer.test, node):
                for part in self.ctx.descendants(question(self.ctx.names, outer.test)[0]):
                    if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, cst.Modulo):
                        return (outer, part.right) if self.ctx.constant(part.right).get_or(0) != 1 else None
        return None

    def _has_backward_outside(self, node: cst.Call, test: cst.If | cst.IfExp) -> bool:
        """The same engine runs its backward in the loop without the test."""
        mine = self.ctx.objects.made(node.func.value) if isinstance(node.func, cst.Attribute) else None
        for call in self.ctx.training.beside(node, "engine", "backward"):
            outside = not self.ctx.tree.contains(test, call)
            if outside and isinstance(call.func, cst.Attribute) and self.ctx.objects.made(call.func.value) is mine:
                return True
        return False

    def _steps_otherwise(self, node: cst.Call, test: cst.If | cst.IfExp) -> bool:
        """The same engine steps in the same loop where the test is false: it may step on every micro batch."""
        loop = self.ctx.loops(node)[0]
        mine = self.ctx.objects.made(node.func.value) if isinstance(node.func, cst.Attribute) else None
        return any(
            isinstance(call.func, cst.Attribute)
            and self.ctx.objects.made(call.func.value) is mine
            and self.ctx.tree.contains(loop, call)
            and not self.ctx.tree.contains(test.body, call)
            for call in self.ctx.training.methods("engine", "step")
        )
