"""The loss of a DeepSpeed engine runs its own backward.

**What.** `loss.backward()`, where the loss was computed by the forward of a DeepSpeed engine, instead of
`engine.backward(loss)`.

**Why it hurts.** Before DeepSpeed 0.18.3 the engine learns of the gradients only in its own `backward`: without it
they are never averaged over the ranks nor handed to ZeRO, and `engine.step()` fails or trains each rank on its own.
Later releases follow a plain backward by hooks, except at stage 0, where it raises `RuntimeError`. In 0.19.8 the hooks
miss the gradients of a loss with two forwards of the engine in it, and `engine.step()` raises `KeyError`.

**Fix.** `engine.backward(loss)`, which the fix writes.

**When it stays quiet.** DeepSpeed 0.18.3 and later at stages 1 to 3, where both are the same, unless the loss certainly
comes from two forwards of one engine and the release may be 0.19.8 or later (0.18.3 trains them; a warning where nobody
states the release); a second forward without a gradient, or in another arm; one forward and a release or stage that
nobody states; losses that come from another model, or in another arm than the engine.

**Evidence.** https://github.com/deepspeedai/DeepSpeed/pull/7665 (0.18.3). Two gloo ranks, DeepSpeed 0.19.8: stage 0
raises `RuntimeError`; stages 1, 2 (also with accumulation) and 3 give the weights of `engine.backward`, and raise
`KeyError` in `step` with two forwards in the loss. Releases before 0.18.3 fail with `KeyError` at stages 2 and 3.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.versions.resolve import covers
from dslint.python.events import Event
from dslint.python.queries.jointforwards import JointForwards
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TWO_ARMS
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import ENGINE, asks_for_stage, has_other_arm, stage_at
from dslint.rules.wrapping.ddps import wrappers_behind
from dslint.rules.zero.enginenames import called_on, function_of, is_scaled

META = RuleMeta(
    code="DSL216",
    name="engine-bypass-loss-backward",
    kind="script",
    severity=Severity.ERROR,
    summary="the loss of a DeepSpeed engine runs its own backward where the engine does not hear of it",
    fix="safe",
    markers=(r"deepspeed",),
    versions=("deepspeed<0.18.3",),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/7665",),
    depends_on_run=True,
)

_SINCE = "0.18.3"
# What was seen to fail; 0.18.3 was seen to work.
_TWICE = "0.19.8"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each backward of a loss that comes from an engine alone, which does not hear of it."""
    joint: JointForwards | None = None
    seen: set[int] = set()
    for found in run.occurrences("backward"):
        event = found.event
        engines = wrappers_behind(run, event)
        if "engine-backward" in event.tags or id(event.node) in seen or not _are_engines(run, engines):
            continue
        stage = stage_at(run, run.makers.get(engines[0]))
        is_asked = run.stage is None and asks_for_stage(found)
        if is_asked or has_other_arm(found, "backward", "backward"):
            continue
        forwards: list[Event] = []
        if stage != 0 and covers(run.context.deepspeed, f"<{_SINCE}") != "yes":
            joint = joint or _joint(run)
            forwards = _forwards(joint, found, engines[0])
            if len(forwards) < 2 or not _may_fail(run):
                continue
        told = _of_run(run, event, engines[0], stage, forwards)
        if told is not None:
            seen.add(id(event.node))
            yield told


def _may_fail(run: RunQuery) -> bool:
    """Return whether a release may be in use that is known to fail with two forwards in a loss."""
    return any(covers(run.context.deepspeed, spec) != "no" for spec in (f"<{_SINCE}", f">={_TWICE}"))


def _joint(run: RunQuery) -> JointForwards:
    forwards = (found.event for found in run.happenings("engine-forward"))
    return JointForwards(run.machine.program, (tree for _, tree in run.trees()), forwards)


def _forwards(joint: JointForwards, found: Happening, engine: Instance) -> list[Event]:
    """Return the forwards of an engine in the loss whose backward runs."""
    loss = called_on(found.event.module, found.event.node)
    if loss is None:
        return []
    scope = function_of(found.event.module, found.event.node)
    forwards = joint.of(loss, found.event.module, scope, found.calls)
    return [event for event in forwards if instances(event.receiver) == [engine]]


def _are_engines(run: RunQuery, made_by: list[Instance]) -> bool:
    kinds = [isinstance(atom.cls, str) and run.machine.libraries.is_class(atom.cls, ENGINE) for atom in made_by]
    return bool(kinds) and all(kinds)


def _of_run(run: RunQuery, event: Event, engine: Instance, stage: int | None, forwards: list[Event]) -> Finding | None:
    node, module = event.node, event.module
    called = node.func if isinstance(node, ast.Call) else None
    loss = called_on(module, node)
    if called is None or (loss is not None and is_scaled(loss)):
        return None
    text = run.text(module, loss) if loss is not None else "loss"
    name, is_here = _called(run, engine, event)
    what, is_certain = _what(run, stage)
    fixed = f"{name}.backward({module.text(loss)})" if loss is not None else ""
    can_fix = (
        is_here
        and loss is not None
        and isinstance(called, ast.Attribute)
        and "\n" not in fixed
        and module.path == run.path
    )
    related = tuple(run.location(f.module, f.node, "a forward of the engine") for f in forwards[:2])
    return run.finding(
        META,
        module,
        node,
        f"`{run.text(module, called, 40)}()` bypasses the DeepSpeed engine: {what}",
        hint=f"Call `{name}.backward({text})`",
        related=related or (version_origin(run.context.deepspeed) if stage != 0 else ()),
        fix=Fix("Let the engine run the backward", (Edit(run.path, module.span(node), fixed),)) if can_fix else None,
        severity=None if is_certain else Severity.WARNING,
        facts={"stage": stage, "forwards": max(len(forwards), 1)},
    )


def _what(run: RunQuery, stage: int | None) -> tuple[str, bool]:
    """Return what a plain backward does, and whether every release does it that may be in use."""
    version = version_named(run.context.deepspeed)
    if covers(run.context.deepspeed, f"<{_SINCE}") == "yes":
        return (
            f"{version} neither averages nor passes on the gradients",
            True,
        )
    if stage == 0:
        return "it raises `RuntimeError` at stage 0", True
    missed = "misses gradients of a loss with two forwards, and `step()` raises"
    if covers(run.context.deepspeed, f">={_TWICE}") == "yes":
        return f"{version} {missed}", True
    return f"releases before {_SINCE} lose the gradients, {_TWICE} loses those of a loss with two forwards", False


def _called(run: RunQuery, engine: Instance, event: Event) -> tuple[str, bool]:
    """Return how the engine is called, and whether it is called so in the function of an event."""
    for found in run.happenings("engine-forward"):
        node = found.event.node
        if (
            found.event.module is event.module
            and isinstance(node, ast.Call)
            and engine in instances(found.event.receiver)
        ):
            is_here = function_of(event.module, node) is function_of(event.module, event.node)
            return event.module.text(node.func).removesuffix(".forward"), is_here
    return "engine", False


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
    bad(
        "two forwards in a helper, and nobody states the release",
        {
            "train.py": (_TWO % "loss.backward()")
            .replace("q, p = engine(batch), engine(labels)", "loss = contrast(engine, batch, labels)")
            .replace("        loss = F.mse_loss(q, p)\n", "")
            .replace(
                "\ndef train",
                "\ndef contrast(model, left, right):\n    q, p = model(left), model(right)\n"
                "    return 0.5 * F.mse_loss(q, p)\n\n\ndef train",
            )
        },
        "train.py:14 warning",
    ),
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
