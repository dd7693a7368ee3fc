"""The script steps a DeepSpeed engine on every n-th micro batch only.

**What.** `engine.backward(loss)` for every micro batch, but `engine.step()` only `if (step + 1) % n == 0`.

**Why it hurts.** The engine counts micro batches by the calls of `step` and accumulates itself. With
`gradient_accumulation_steps` of n in the config it then steps on every n x n-th batch, or on other sums than meant.
With 1 in the config, ZeRO stages 1 and 2 keep the gradients of the last micro batch only: all others are computed and
discarded, silently. Releases before 0.18.3 raise `TypeError` there.

**Fix.** Call `engine.step()` after every `backward` and set `gradient_accumulation_steps` in the config. Where the
script must decide, `engine.set_gradient_accumulation_boundary(...)` tells the engine.

**When it stays quiet.** `gradient_accumulation_steps` of 1 at stages 0 and 3, where gradients do add up; scripts that
set the boundary; a backward under the same test (two models that take turns); a step elsewhere in the same loop,
such as `else: engine.step()`, after which the test decides on something else than the step;
`engine.is_gradient_accumulation_boundary()` as the test. When neither stage nor steps are known it is a warning.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8, four micro batches: with 2 in the config and a step on every second,
stages 0, 2 and 3 end with other weights; with 1 in the config, stages 1 and 2 do, stages 0 and 3 are right.
https://github.com/allenai/open-instruct/pull/1498
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event, Loop, events, walk
from dslint.python.queries.asked import expressions_of
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import (
    ENGINE,
    arms_of,
    asks_for_stage,
    maker_of,
    micro_batches,
    owners_of,
    stage_at,
)

META = RuleMeta(
    code="DSL218",
    name="manual-accumulation-around-engine",
    kind="script",
    severity=Severity.ERROR,
    summary="a DeepSpeed engine is stepped on every n-th micro batch only",
    markers=(r"deepspeed",),
    references=(
        "https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters",
        "https://github.com/allenai/open-instruct/pull/1498",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where a remainder decides on the step of an engine and not on its backward."""
    told = any(owners_of(run, found.event.receiver, ENGINE) for found in run.happenings("accumulate"))
    seen: set[int] = set()
    for found in () if told else run.occurrences("engine-step"):
        event = found.event
        owners = owners_of(run, event.receiver, ENGINE)
        loop = _loop(found)
        if not owners or loop is None or id(event.node) in seen:
            continue
        test = _remainder(found, loop)
        if test is None or not _is_backward_outside(run, found, test[0], loop) or _steps_otherwise(run, found, loop):
            continue
        finding = _finding(run, found, owners, *test)
        if finding is not None:
            seen.add(id(event.node))
            yield finding


def _loop(found: Happening) -> Loop | None:
    """Return the loop over micro batches: the innermost one in which an engine runs a backward."""
    loops = (node for node in reversed(found.around) if isinstance(node, Loop))
    return next((loop for loop in loops if any("engine-backward" in e.tags for e in events(loop.body))), None)


def _remainder(found: Happening, loop: Loop) -> tuple[Alt, ast.expr] | None:
    """Return the test `x % n == 0` that decides on a step within its loop, with the `n`."""
    inner = {id(node) for node in walk(loop.body)}
    for arm in reversed(arms_of(found)):
        for asked in expressions_of(arm.alt) if id(arm.alt) in inner else ():
            for part in ast.walk(asked):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                    is_one = isinstance(part.right, ast.Constant) and part.right.value == 1
                    is_text = isinstance(part.left, ast.Constant | ast.JoinedStr)
                    return None if is_one or is_text else (arm.alt, part.right)
    return None


def _is_same(run: RunQuery, found: Happening, event: Event) -> bool:
    mine = {run.makers.get(atom) for atom in instances(found.event.receiver)}
    return any(run.makers.get(atom) in mine for atom in instances(event.receiver))


def _is_backward_outside(run: RunQuery, found: Happening, alt: Alt, loop: Loop) -> bool:
    """The same engine runs its backward in the loop, and the test does not decide on it."""
    inside = {id(event) for event in events(loop.body)}
    arms = {id(arm.alt): arm.holds for arm in arms_of(found)}
    for other in run.occurrences("engine-backward"):
        if id(other.event) in inside and _is_same(run, found, other.event):
            theirs = {id(arm.alt): arm.holds for arm in arms_of(other)}
            if id(alt) not in theirs and not any(arms.get(key, holds) != holds for key, holds in theirs.items()):
                return True
    return False


def _steps_otherwise(run: RunQuery, found: Happening, loop: Loop) -> bool:
    """The same engine steps in the same loop elsewhere: it may step on every micro batch."""
    others = (e for e in events(loop.body) if "engine-step" in e.tags and e.node is not found.event.node)
    return any(_is_same(run, found, e) for e in others)


def _finding(run: RunQuery, found: Happening, owners: list[Instance], alt: Alt, every: ast.expr) -> Finding | None:
    event = found.event
    steps = micro_batches(run, owners, ENGINE)
    count = steps.count if steps is not None else None
    maker = maker_of(run, owners)
    stage = stage_at(run, maker)
    if stage is None and asks_for_stage(found):
        return None
    severity, what = _judged(stage, count, _is_own_count(run, alt, every))
    if severity is None:
        return None
    called = run.text(event.module, event.node.func) if isinstance(event.node, ast.Call) else "engine.step"
    origins = (place.labelled(place.label or "ZeRO stage") for place in run.context.zero_stage.origins)
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{called}()` runs on every `{run.text(alt.module, every, 30)}`-th micro batch, but the engine counts"
        " its calls:"
        f" {what}",
        hint=f"Call `{called}()` after every `backward` and set `gradient_accumulation_steps` in the DeepSpeed config",
        related=(
            run.location(alt.module, getattr(alt.node, "test", alt.node), "this test skips the step"),
            *(steps.places if steps is not None and count is not None else ()),
            *origins,
        ),
        severity=severity,
        facts={"stage": stage, "gas": count},
    )


def _judged(stage: int | None, count: int | None, is_own: bool) -> tuple[Severity | None, str]:
    if count is not None and count > 1:
        return Severity.ERROR, f"it steps {count} times too rarely"
    if is_own:
        again = "it steps too rarely"
        return (None if count is not None else Severity.WARNING), again
    thrown = "ZeRO 1 and 2 keep only the last"
    if stage in (1, 2):
        return Severity.ERROR, thrown
    if stage is not None:
        return None, ""
    return Severity.WARNING, f"{thrown} unless the config accumulates"


def _is_own_count(run: RunQuery, alt: Alt, every: ast.expr) -> bool:
    """The number is what the engine says, or a variable that was given it."""
    asked = {id(found.event.node) for found in run.happenings("counts-micro-batches")}
    if not asked:
        return False
    text = alt.module.text(every)
    given = (n for n in alt.module.nodes_of(ast.Assign) if id(n.value) in asked)
    return id(every) in asked or any(alt.module.text(target) == text for n in given for target in n.targets)


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
