"""The loss of a DeepSpeed engine runs its own backward.

**What.** `loss.backward()`, where the loss was computed by the forward of a DeepSpeed engine, instead of
`engine.backward(loss)`.

**Why it hurts.** Before DeepSpeed 0.18.3 the engine learns of the gradients only in its own `backward`: without it
they are never averaged over the ranks nor handed to ZeRO, and `engine.step()` fails or trains each rank on its own.
Later releases follow a plain backward by hooks, except at stage 0, where it raises `RuntimeError`. In 0.19.8 the hooks
miss the gradients of a loss with two forwards of the engine in it, and `engine.step()` raises `KeyError`.

**Fix.** `engine.backward(loss)`, which the fix writes.

**When it stays quiet.** DeepSpeed 0.18.3 and later at stages 1 to 3, where both are the same, unless the loss certainly
comes from two forwards of one engine and the release is 0.19.8 or later (0.18.3 trains them); a second forward without
a gradient, or in another arm; a release or stage that nobody states; losses that come from another model, or in another
arm than the engine.

**Evidence.** https://github.com/deepspeedai/DeepSpeed/pull/7665 (0.18.3). Two gloo ranks, DeepSpeed 0.19.8: stage 0
raises `RuntimeError`; stages 1, 2 (also with accumulation) and 3 give the weights of `engine.backward`, and raise
`KeyError` in `step` with two forwards in the loss. Releases before 0.18.3 fail with `KeyError` at stages 2 and 3.
"""

from __future__ import annotations

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.script.training.enginewords import ENGINE, plain_backward
from dslint.model.script.training.jointforwards import JointForwards
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.snippets import TWO_ARMS
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL216",
    name="engine-bypass-loss-backward",
    kind="script",
    severity=Severity.ERROR,
    summary="the loss of a DeepSpeed engine runs its own backward where the engine does not hear of it",
    fix="safe",
    markers=(r"\.backward\(", *ENGINE),
    versions=("deepspeed<0.18.3",),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/7665",),
    depends_on_run=True,
)

_SINCE = "0.18.3"
# What was seen to fail; 0.18.3 was seen to work.
_TWICE = "0.19.8"
_TRAIN = """\
import deepspeed
import torch.nn.functional as F


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for batch, labels in loader:
        logits = engine(batch)
        loss = F.cross_entropy(logits, labels)
        %s
        engine.step()
"""
_STAGE_0 = """\
import deepspeed

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "SGD"}, "zero_optimization": {"stage": 0}}


def train(model, loader):
    engine = deepspeed.initialize(model=model, config=CONFIG)[0]
    for batch in loader:
        %s
        engine.step()
"""

_TWO = (_TRAIN % "{}").replace("logits = engine(batch)", "q, p = engine(batch), engine(labels)")
_TWO = _TWO.replace("F.cross_entropy(logits, labels)", "F.mse_loss(q, p)").replace("{}", "%s")

EXAMPLES = (
    bad(
        "a release that misses the gradients",
        {"train.py": _TRAIN % "loss.backward()"},
        "train.py:10 error",
        fixed={"train.py": _TRAIN % "engine.backward(loss)"},
        deepspeed_version="0.16.4",
    ),
    bad(
        "stage 0",
        {"train.py": _STAGE_0 % "engine(batch).mean().backward()"},
        "train.py:9 error",
        fixed={"train.py": _STAGE_0 % "engine.backward(engine(batch).mean())"},
    ),
    bad(
        "two forwards of the engine in one loss",
        {"train.py": _TWO % "loss.backward()"},
        "train.py:10 error",
        fixed={"train.py": _TWO % "engine.backward(loss)"},
        deepspeed_version="0.19.8",
    ),
    good(
        "two forwards, and the engine runs the backward",
        {"train.py": _TWO % "engine.backward(loss)"},
        deepspeed_version="0.19.8",
    ),
    good(
        "two forwards, and a release that trains them",
        {"train.py": _TWO % "loss.backward()"},
        deepspeed_version="0.18.3",
    ),
    good("two forwards, and nobody states the release", {"train.py": _TWO % "loss.backward()"}),
    good(
        "two forwards, one without a gradient, or one of two",
        {
            "train.py": (_TWO % "loss.backward()").replace("engine(labels)", "engine(labels).detach()"),
            "arms.py": (_TWO % "loss.backward()")
            .replace("engine(labels)", "labels")
            .replace("        loss =", "        if args.again:\n            q = engine(batch + 1)\n        loss ="),
        },
        deepspeed_version="0.19.8",
    ),
    good("the engine runs it", {"train.py": _TRAIN % "engine.backward(loss)"}, deepspeed_version="0.16.4"),
    good(
        "a release that follows a plain backward", {"train.py": _TRAIN % "loss.backward()"}, deepspeed_version="0.18.4"
    ),
    good("nobody states the release or the stage", {"train.py": _TRAIN % "loss.backward()"}),
    good(
        "the arm without an engine",
        {"train.py": TWO_ARMS},
        deepspeed_version="0.16.4",
    ),
    good(
        "the loss of another model",
        {"train.py": _TRAIN.replace("engine(batch)", "judge(batch)") % "loss.backward()"},
        deepspeed_version="0.16.4",
    ),
)

precheck = plain_backward


def applies(_path: str, context: Context) -> bool:
    """A release that misses a plain backward, of one forward or of two, or stage 0, may be in use."""
    if covers(context.deepspeed, f"<{_SINCE}") == "yes" or covers(context.deepspeed, f">={_TWICE}") == "yes":
        return True
    return not context.zero_stage.is_known or context.zero_stage.get() == 0


class Check(ScriptCheck):
    """Looks at every `loss.backward()`."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the loss certainly comes from an engine that does not hear of it."""
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "backward" or node.args:
            return
        stage = self.ctx.zero.at(node).stage
        is_old = covers(self.ctx.run.deepspeed, f"<{_SINCE}") == "yes"
        loss = node.func.value
        joint = [] if is_old or stage == 0 else self._joint(loss)
        if not (is_old or stage == 0 or len(joint) > 1):
            return
        forwards = self.ctx.training.forwards(loss)
        if not forwards or any(self.ctx.training.forward_kind(f) != "engine" for f in forwards):
            return
        if self.ctx.training.has_other_arm(node, "backward"):
            return
        engine = self.ctx.text(forwards[0].func).removesuffix(".forward")
        text = self.ctx.text(loss)
        if stage == 0 and not is_old:
            what = "DeepSpeed raises `RuntimeError` for it at stage 0"
        elif joint:
            version = version_named(self.ctx.run.deepspeed)
            what = f"{version} misses the gradients of a loss with two forwards, and `step()` raises `KeyError`"
        else:
            version = version_named(self.ctx.run.deepspeed)
            what = f"{version} does not hear of it, and the gradients are neither averaged over the ranks nor handed on"
        self.report(
            node,
            f"`{text}.backward()` passes over the engine that computed the loss: {what}",
            hint=f"Call `{engine}.backward({text})`",
            related=(
                version_origin(self.ctx.run.deepspeed)
                if is_old
                else tuple(self.ctx.location(f, "a forward of the engine") for f in joint[:2])
            ),
            fix=self._fix(node, f"{engine}.backward({text})"),
            facts={"stage": stage, "forwards": len(joint) or len(forwards)},
        )

    def _joint(self, loss: cst.BaseExpression) -> list[cst.Call]:
        """The forwards of one engine that are certainly in the loss, where the release fails with two."""
        if covers(self.ctx.run.deepspeed, f">={_TWICE}") != "yes":
            return []
        return JointForwards(self.ctx.tree, self.ctx.names, self.ctx.training).of(loss)

    def _fix(self, node: cst.Call, text: str) -> Fix | None:
        if "\n" in text:
            return None
        return Fix("Let the engine run the backward", (Edit(self.ctx.doc.path, self.ctx.span(node), text),))
