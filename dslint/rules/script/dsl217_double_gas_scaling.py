"""The loss is divided by the accumulation steps twice, or by others than those of the engine.

**What.** The script divides the loss by the number of accumulated micro batches and then hands it to `engine.backward`
or `accelerator.backward`, which divide it too. Or it divides by an argument of its own, 10 say, while the config of the
DeepSpeed engine says 1, so that `engine.step()` updates at every micro batch.

**Why it hurts.** The gradient is too small by the number of micro batches. SGD then learns that much slower; with Adam
it shows only where gradients are clipped or compared with epsilon, so the run looks fine and differs from the paper.
The engine follows its config alone: an argument that says more only makes the loss smaller, and the batch stays small.

**Fix.** Hand over the loss as it is, or, with DeepSpeed, `engine.backward(loss, scale_wrt_gas=False)`. The fix removes
a division that is inside the call. What accumulates is `gradient_accumulation_steps` in the DeepSpeed config.

**When it stays quiet.** Accumulation of 1, or of a number that neither the configs of the run nor the file tell; a
divided copy for the log; `scale_wrt_gas=False`; a division in an arm that does not lead to the call; an `Accelerator`
without `gradient_accumulation_steps`; a script that steps at every n-th micro batch itself.

**Evidence.** Two gloo ranks, two micro batches a step, SGD: stages 0, 2 and 3 of DeepSpeed 0.19.8 end with other
weights than the undivided loss, and accelerate 1.15 with gradients of half the size.
https://github.com/deepspeedai/DeepSpeed/issues/7439, https://github.com/huggingface/accelerate/issues/1773
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Location
from dslint.python.events import Event
from dslint.python.values import Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.loopcounts import several, steps_in_every_turn
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import (
    ACCELERATOR,
    ENGINE,
    asks_for_count,
    counts,
    first_made,
    is_own_count,
    is_same_number,
    maker_of,
    micro_batches,
    owners_of,
    stage_at,
    tests_beyond,
)

META = RuleMeta(
    code="DSL217",
    name="double-gas-scaling",
    kind="script",
    severity=Severity.WARNING,
    summary="the loss is divided by the accumulation steps, and the library divides it again",
    fix="unsafe",
    markers=(r"deepspeed|accelerat",),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/7439",
        "https://github.com/huggingface/accelerate/issues/1773",
        "DeepSpeedEngine.backward in deepspeed/runtime/engine.py",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each backward of an engine or Accelerator whose loss was divided by the number that it divides by."""
    divided = {atom: found for found in run.occurrences("divides") for atom in instances(found.event.result)}
    seen: set[int] = set()
    for found in run.occurrences("engine-backward") if divided else ():
        event = found.event
        loss = event.arguments.get("loss") or event.arguments.get("*0")
        if id(event.node) in seen or loss is None or event.open or "scale_wrt_gas" in event.arguments:
            continue
        for kind in (ENGINE, ACCELERATOR):
            division, places = _counted(run, found, loss, divided, kind)
            if division is not None:
                seen.add(id(event.node))
                yield _finding(run, event, division.event, places, kind)
        if id(event.node) not in seen:
            yield from _not_accumulated(run, found, loss, divided)


def _not_accumulated(
    run: RunQuery, found: Happening, loss: Value, divided: dict[Instance, Happening]
) -> Iterator[Finding]:
    """Fire where the script divides by a number of its own, and the engine steps after each micro batch."""
    owners = owners_of(run, found.event.receiver, ENGINE)
    steps = micro_batches(run, owners, ENGINE) if owners else None
    if steps is None or steps.count != 1:
        return
    for half in (divided[atom] for atom in (first_made(run, a) for a in instances(loss)) if atom in divided):
        own = several(run, half.event.arguments["by"]) if counts(_divisor(half.event)) else None
        if own is not None and steps_in_every_turn(run, found):
            by = run.text(half.event.module, _divisor(half.event) or half.event.node)
            yield run.finding(
                META,
                half.event.module,
                half.event.node,
                f"the script accumulates by `{by}` = {own[0]}, but the engine steps at every micro batch: its config"
                " says 1",
                hint="Write the number into the DeepSpeed config, and pass the loss undivided",
                related=(*own[1], *steps.places),
                facts={"stage": stage_at(run, maker_of(run, owners)), "library": "deepspeed"},
            )
            return


def _counted(
    run: RunQuery, found: Happening, loss: Value, divided: dict[Instance, Happening], kind: str
) -> tuple[Happening | None, tuple[Location, ...]]:
    """Return the division that leads to the backward by the number of the library, and where that is stated."""
    owners = owners_of(run, found.event.receiver, kind)
    if not owners:
        return None, ()
    made = (first_made(run, atom) for atom in instances(loss))
    halves = [divided[atom] for atom in made if atom in divided]
    told = [(half, _places(run, owners, kind, half.event)) for half in halves]
    is_always = len(halves) == len(loss.atoms) and all(places is not None for _, places in told)
    for half, places in told:
        by = half.event.arguments["by"]
        if places is not None and (is_always or all(asks_for_count(alt, by) for alt in tests_beyond(half, found))):
            return half, places
    return None, ()


def _places(run: RunQuery, owners: list[Instance], kind: str, division: Event) -> tuple[Location, ...] | None:
    """Return where the library is told to divide by the same number; `None` when it is not, or nobody knows."""
    by = division.arguments["by"]
    steps = micro_batches(run, owners, kind)
    if is_own_count(by):
        return steps.places if steps is not None and steps.count != 1 else () if steps is None else None
    if steps is None or steps.count == 1:
        return None
    if steps.value is not None and is_same_number(by, steps.value):
        return steps.places
    is_same = steps.count is not None and (by.constants == (steps.count,) or counts(_divisor(division)))
    return steps.places if is_same else None


def _divisor(division: Event) -> ast.AST | None:
    node = division.node
    if isinstance(node, ast.AugAssign):
        return node.value
    return node.right if isinstance(node, ast.BinOp) else None


def _finding(run: RunQuery, event: Event, division: Event, places: tuple[Location, ...], kind: str) -> Finding:
    node = event.node
    called = run.text(event.module, node.func) if isinstance(node, ast.Call) else event.api
    by = _divisor(division)
    what = f" (by `{run.text(division.module, by)}`)" if by is not None else ""
    is_inside = isinstance(node, ast.Call) and division.node in node.args
    related = () if is_inside else (run.location(division.module, division.node, "divided here"),)
    return run.finding(
        META,
        event.module,
        node,
        f"`{called}` divides the loss by the accumulation steps, and so does the script{what}: gradients are too small",
        hint="Pass the loss undivided, and divide only what is logged",
        related=(*related, *places),
        fix=_fix(run, event, division) if is_inside else None,
        facts={
            "stage": stage_at(run, maker_of(run, owners_of(run, event.receiver, kind))),
            "library": "deepspeed" if kind == ENGINE else "accelerate",
        },
    )


def _fix(run: RunQuery, event: Event, division: Event) -> Fix | None:
    loss, module = division.node, event.module
    if not isinstance(loss, ast.BinOp) or not isinstance(loss.op, ast.Div) or module.path != run.path:
        return None
    edit = Edit(module.path, module.span(loss), module.text(loss.left))
    return Fix("Pass the loss undivided", (edit,), Safety.UNSAFE)


_WITH_ENGINE = """\
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

_OWN = """\
import argparse

import deepspeed

from mine import batches, build

parser = argparse.ArgumentParser()
parser.add_argument("--accum_steps", type=int, default=1)
parser.add_argument("--local_rank", type=int, default=-1)
args = deepspeed.add_config_arguments(parser).parse_args()
engine, _, _, _ = deepspeed.initialize(args=args, model=build())
for step, batch in enumerate(batches()):
    loss = engine(batch) / args.accum_steps
    engine.backward(loss)
    engine.step()
"""
_START = "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json --accum_steps %d\n"
_ONE = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": %d}\n'
_STEPPED = "    if (step + 1) % args.accum_steps == 0:\n        engine.step()\n"

EXAMPLES = (
    bad("an argument of the command, and a config that says 1", {
        "train.py": _OWN, "run.sh": _START % 10, "ds.json": _ONE % 1,
    }, "train.py:13"),
    bad("the default of an argument", {
        "train.py": _OWN.replace("default=1", "default=8"), "run.sh": _START.partition(" --accum")[0] + "\n",
        "ds.json": _ONE % 1,
    }, "train.py:13"),
    bad("in a function of its own", {
        "train.py": _OWN.replace(
            "args = deep", "\n\ndef scaled(loss, accum_steps):\n    return loss / accum_steps\n\n\nargs = deep"
        ).replace("engine(batch) / args.accum_steps", "scaled(engine(batch), args.accum_steps)"),
        "run.sh": _START % 10, "ds.json": _ONE % 1,
    }, "train.py:13"),
    bad("a constant", {
        "train.py": _OWN.replace("args.accum_steps", "ACCUM_STEPS").replace("args =", "ACCUM_STEPS = 4\nargs ="),
        "run.sh": _START.partition(" --accum")[0] + "\n", "ds.json": _ONE % 1,
    }, "train.py:14"),
    good("one micro batch a step in both", {"train.py": _OWN, "run.sh": _START % 1, "ds.json": _ONE % 1}),
    good("the script steps at every n-th micro batch", {
        "train.py": _OWN.replace("    engine.step()\n", _STEPPED), "run.sh": _START % 4, "ds.json": _ONE % 1,
    }, select="DSL217"),
    bad("divided by what the config states as well", {"train.py": _WITH_ENGINE % _DIVIDED}, "train.py:15"),
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
    bad(
        "divided in a function of another file, by a plugin's number",
        {
            "losses.py": "def scaled(loss, steps):\n    return loss / steps\n",
            "train.py": _ACCELERATE.replace("(gradient_accumulation_steps=%s)", "(gradient_accumulation_plugin=%s)")
            .replace(
                "import Accelerator", "import Accelerator\nfrom accelerate.utils import GradientAccumulationPlugin"
            )
            .replace("def train", "from losses import scaled\n\n\ndef train")
            % ("GradientAccumulationPlugin(num_steps=4)", "scaled(model(**batch).loss, 4)"),
        },
        "train.py:14",
    ),
    good("divided for the log alone, by the number of the command", {
        "train.py": _OWN.replace("    loss =", "    loss = engine(batch)\n    logged ="), "run.sh": _START % 8,
        "ds.json": _ONE % 1,
    }, select="DSL217"),
    good("divided for the log", {"train.py": _WITH_ENGINE % _DIVIDED.replace("loss =", "logged =")}),
    good(
        "the engine is told not to",
        {"train.py": _WITH_ENGINE % _DIVIDED.replace("backward(loss)", "backward(loss, scale_wrt_gas=False)")},
    ),
    good("accelerate does not accumulate", {"train.py": _ACCELERATE % ("1", "model(**batch).loss / 4")}),
    good("a mean over tokens", {"train.py": _ACCELERATE % ("4", "model(**batch).loss / batch['tokens']")}),
    good(
        "the arm without an engine",
        {
            "train.py": _WITH_ENGINE
            % """\
        if not args.deepspeed:
            loss = loss / args.gradient_accumulation_steps
        if args.deepspeed:
            engine.backward(loss)"""
        },
    ),
)  # fmt: skip
