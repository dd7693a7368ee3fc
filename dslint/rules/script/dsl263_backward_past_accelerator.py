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

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Location
from dslint.model.script.training.enginewords import plain_backward
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL263",
    name="backward-past-accelerator",
    kind="script",
    severity=Severity.WARNING,
    summary="a loss runs its own backward although accelerate prepared its model",
    fix="safe",
    markers=(r"\.backward\(", r"accelerat", r"\.prepare\(|prepare_model\(", r"\.backward\(\s*\)|\.backward\(\s*\w+="),
    references=("https://huggingface.co/docs/accelerate/basic_tutorials/migration#backward",),
    depends_on_run=True,
)

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

precheck = plain_backward


class Check(ScriptCheck):
    """Looks at every `loss.backward()`."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the loss certainly comes from a prepared model."""
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "backward" or node.args:
            return
        loss = node.func.value
        forwards = self.ctx.training.forwards(loss)
        if not forwards or any(self.ctx.training.forward_kind(f) != "prepared_model" for f in forwards):
            return
        if self.ctx.training.has_other_arm(node, "backward"):
            return
        made = self.ctx.objects.made(_model(forwards[0]))
        severity, what, related = self._effect(made)
        text = self.ctx.text(loss)
        owner = self._accelerator(made, node)
        self.report(
            node,
            f"`{text}.backward()` passes over the Accelerator that prepared the model: {what}",
            hint=f"Call `{owner or 'accelerator'}.backward({text})`",
            related=related,
            severity=severity,
            facts={"accumulates": "micro batches" in what},
            fix=self._fix(node, f"{owner}.backward({text})") if owner and "\n" not in text else None,
        )

    def _effect(self, made: cst.Call | None) -> tuple[Severity, str, tuple[Location, ...]]:
        """What is lost, as far as the file and the run say."""
        stage = self.ctx.run.zero_stage
        if stage.is_known:
            return Severity.WARNING, "the DeepSpeed engine steps inside `accelerator.backward` only", stage.origins
        owner = made.func.value if made is not None and isinstance(made.func, cst.Attribute) else None
        accelerator = self.ctx.objects.made(owner) if owner is not None else None
        if accelerator is not None:
            steps = self.ctx.argument(accelerator, "gradient_accumulation_steps", 3)
            if steps is not None and self.ctx.constant(steps).get_or(2) != 1:
                place = (self.ctx.location(steps, "accumulates"),)
                return (
                    Severity.WARNING,
                    "the gradients of the micro batches of a step are added up, not averaged",
                    place,
                )
            precision = self.ctx.argument(accelerator, "mixed_precision", 2)
            if precision is not None and self.ctx.constant(precision).get_or("") == "fp16":
                place = (self.ctx.location(precision, "needs a scaled loss"),)
                return Severity.WARNING, "the loss is not scaled for fp16, and small gradients become 0", place
        what = "accumulation, fp16 scaling and DeepSpeed, which the launch may ask for, are left out"
        return Severity.INFO, what, ()

    def _accelerator(self, made: cst.Call | None, node: cst.Call) -> str:
        """How the Accelerator is called where the backward stands; empty when nobody knows."""
        owner = made.func.value if made is not None and isinstance(made.func, cst.Attribute) else None
        if not isinstance(owner, cst.Name) or made is None:
            return ""
        same = self.ctx.names.bindings(owner.value, made) == self.ctx.names.bindings(owner.value, node)
        return owner.value if same else ""

    def _fix(self, node: cst.Call, text: str) -> Fix:
        return Fix("Let the Accelerator run the backward", (Edit(self.ctx.doc.path, self.ctx.span(node), text),))


def _model(forward: cst.Call) -> cst.BaseExpression:
    called = forward.func
    return called.value if isinstance(called, cst.Attribute) and called.attr.value == "forward" else called
