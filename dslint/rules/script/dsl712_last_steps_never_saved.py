"""Weights are saved at every N-th step only, and nothing saves those of the last steps.

**What.** A script trains for a number of epochs and saves inside of the loop over batches, if `step % 5000 == 0`.
No other line of it saves weights: none at the end of an epoch, and none after the loops.

**Why it hurts.** The number of steps is that of the epochs times that of the batches, and seldom a multiple of N. What
is trained after the last multiple is lost when the script ends, up to N - 1 steps of every run, with the part
of the schedule at which the rate is lowest; a run of fewer than N steps leaves no weights at all. The log says "Done".

**Fix.** Save once more after the loops.

It is a note: many runs are ended by hand, at a step that somebody chose.

**When it stays quiet.** A line that saves, exports or stores something at another place; a test that also asks for the
last step or the end; loops that end at a number of steps, which may be a multiple; N below 100, or one of which no line
gives the value or the default; saves that each epoch decides.

**Evidence.** Ten steps in two epochs of five, and a save at each multiple of four: the newest file holds step 8, what
steps 9 and 10 changed is in none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Loop, events
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.stateddefaults import stated_default
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL712",
    name="last-steps-never-saved",
    kind="script",
    severity=Severity.INFO,
    summary="weights are saved at every N-th step only: what the last steps of a run train is lost",
    markers=(r"torch|accelerat|deepspeed", r"%", r"save"),
    references=("https://pytorch.org/tutorials/beginner/saving_loading_models.html",),
    depends_on_run=True,
    no_experiment="which steps a save leaves out can be counted without a run",
)
_SAVES = ("saves", "saves-collective")
_OF_WEIGHTS = re.compile(r"^torch\.save$|\.save_(?:pretrained|checkpoint|state|model|file)$|checkpoint\.save$")
_STEPS = frozenset({"backward", "engine-backward", "engine-step", "optimizer-step"})
# What may save somewhere else, and tests that know where the end is.
_STORES = re.compile(r"(?i)\b\w*(?:save|export|push_to_hub|checkpoint|ckpt|store|dump|snapshot|finali[sz]e)\w*\(")
_LAST = re.compile(r"(?i)last|final|done|stop|end|finish|max_|total|len\(|num_(?:train|iter|step)|n_iter")
# Calls that make a folder, or load, by their names.
_MAKES_PATH = re.compile(r"(?i)dir|path|load|resume|restore|latest|find|args?\(")
_SMALLEST = 100


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the save of a script that saves at multiples of a step alone."""
    found = [h for h in run.happenings(*_SAVES) if _OF_WEIGHTS.search(h.event.api)]
    tests = [_test(saved) for saved in found]
    if not found or any(test is None for test in tests):
        return
    saved, test = found[0], tests[0]
    if test is None or any(other is None or other.node is not test.node for other in tests):
        return
    loops = [node for node in saved.around if isinstance(node, Loop) and _trains(node)]
    every = _every(test)
    if len(loops) < 2 or every is None or not _is_by_epochs(loops):
        return
    count = stated_default(run.machine.program.modules(), every)
    if count is None or count < _SMALLEST or _stores_elsewhere(test, loops[0]):
        return
    module = test.module
    yield run.finding(
        META,
        module,
        getattr(test.node, "test", test.node),
        f"Weights are saved at multiples of {count} steps only: up to {count - 1} steps at the end of a run are lost",
        hint="Save once more after the loops",
        related=(
            run.location(saved.event.module, saved.event.node, "the save"),
            run.location(loops[0].module, loops[0].node, "nothing saves after this loop"),
        ),
    )


def _test(saved: Happening) -> Alt | None:
    """Return the nearest test around a save that asks for a multiple of a number."""
    return next((node for node in reversed(saved.around) if isinstance(node, Alt) and _every(node) is not None), None)


def _every(test: Alt) -> ast.expr | None:
    """Return N of `step % N == 0`, perhaps with other tests beside it that know no end."""
    asked = getattr(test.node, "test", None)
    if not isinstance(asked, ast.expr) or _LAST.search(ast.unparse(asked)):
        return None
    parts = asked.values if isinstance(asked, ast.BoolOp) and isinstance(asked.op, ast.And) else [asked]
    return next(filter(None, map(_multiple_of, parts)), None)


def _multiple_of(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        return node.left.right if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod) else None
    return None


def _trains(loop: Loop) -> bool:
    return any(event.tags & _STEPS for event in events(loop.body))


def _is_by_epochs(loops: list[Loop]) -> bool:
    """Return whether the loops go over epochs and over the batches of each, and nothing ends them early."""
    outer, inner = loops[0], loops[-1]
    if not isinstance(outer.node, ast.For) or not isinstance(inner.node, ast.For):
        return False
    leaves = any(isinstance(node, ast.Break | ast.Return) for loop in loops for node in ast.walk(loop.node))
    return not leaves and "range(" in ast.unparse(outer.node.iter) and "range(" not in ast.unparse(inner.node.iter)


def _stores_elsewhere(test: Alt, outer: Loop) -> bool:
    """Return whether something in the files of the loop and of the test may save, but for what the test decides."""
    for module in {test.module, outer.module}:
        inside = module.span(test.node) if module is test.module else None
        for found in _STORES.finditer(module.code):
            if inside is not None and inside.start <= found.start() < inside.end:
                continue
            if not _is_definition(module, found.start()) and not _MAKES_PATH.search(found[0]):
                return True
    return False


def _is_definition(module: Module, at: int) -> bool:
    return module.code[:at].rstrip().endswith(("def", "class"))


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt-every", type=int, default=%s)
    parser.add_argument("--epochs", type=int, default=10)
    return parser.parse_args()


def main(net, loader):
    args = parse()
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            steps += 1
            if %s:
                if dist.get_rank() == 0:
                    torch.save(model.module.state_dict(), f"out/{steps:07d}.pt")
    %s


main(torch.nn.Linear(2, 2), torch.load("loader.pt", weights_only=False))
"""
_MULTIPLE = "steps % args.ckpt_every == 0 and steps > 0"
_ENGINE = """\
import deepspeed

SAVE_STEPS = 2000


def train(net, loader, config):
    engine, _, _, _ = deepspeed.initialize(model=net, config=config)
    for epoch in range(3):
        for step, (x, y) in enumerate(loader):
            loss = engine(x, y)
            engine.backward(loss)
            engine.step()
            if (step + 1) %% SAVE_STEPS == 0:
                engine.save_checkpoint("out")
%s

train(*__import__("parts").parts())
"""

EXAMPLES = (
    bad("a save at every multiple of 5000", {"train.py": _TRAIN % (5000, _MULTIPLE, 'print("Done")')}, "train.py:28"),
    bad("not a multiple: nothing is done", {"train.py": _TRAIN % (
        1000, "0 < steps and steps % args.ckpt_every == 0", "dist.destroy_process_group()")}, "train.py:28"),
    bad("an engine, by the number of the batch", {"train.py": _ENGINE % ""}, "train.py:13"),
    good("saved once more", {"train.py": _TRAIN % (5000, _MULTIPLE,
        'if dist.get_rank() == 0:\n        torch.save(model.module.state_dict(), "out/last.pt")')}),
    good("at the end of each epoch, too", {"train.py": _ENGINE % '        engine.save_checkpoint("out")\n'}),
    good("few steps", {"train.py": _TRAIN % (10, _MULTIPLE, "")}),
    good("nobody knows how many", {"train.py": _TRAIN % ('__import__("os").cpu_count()', _MULTIPLE, "")}),
    good("the last step counts, too", {"train.py": _TRAIN % (
        5000, "steps % args.ckpt_every == 0 or steps == args.epochs * len(loader)", "")}),
    good("the loop ends at a number of steps", {"train.py": (_TRAIN % (5000, _MULTIPLE, "")).replace(
        "            steps += 1\n", "            steps += 1\n            if steps > 9999:\n                return\n")}),
)  # fmt: skip
