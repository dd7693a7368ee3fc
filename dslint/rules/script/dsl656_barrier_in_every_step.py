"""All ranks wait for each other in every step of the training loop.

**What.** `accelerator.wait_for_everyone()` or `dist.barrier()` is in the loop that trains, and nothing decides
over it.

**Why it hurts.** The backward pass makes the ranks wait for each other as it is, on the GPU and while the CPU prepares
what comes next. A barrier waits on the CPU, until all that was launched is done: the GPU idles until the next batch is
there and the next kernels are launched, in every step. A rank that is late once delays all, and cannot catch up.

**Fix.** Leave it out, or move it under the test for what needs it (`if step % save_every == 0:`).

**When it stays quiet.** A barrier under a test, in a loop over epochs, or beside a save, an evaluation or a timing of
its own; benchmarks; loops without a backward pass.

**Evidence.** `wait_for_everyone` is `torch.distributed.barrier`, which synchronises the device with the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event, Loop, Try, events, walk
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL656",
    name="barrier-in-every-step",
    kind="script",
    severity=Severity.WARNING,
    summary="a barrier in every training step drains the GPU",
    markers=(r"wait_for_everyone|barrier\(", r"backward\("),
    references=("https://github.com/PixArt-alpha/PixArt-sigma/issues/23",),
    depends_on_run=True,
    no_experiment="what a barrier costs depends on the GPU and the load",
)
_TRAINS = frozenset({"backward", "engine-backward"})
_STEPS = frozenset({"optimizer-step", "engine-step", "scaler-step"})
# What others wait for, in the same turn.
_NEEDS = frozenset(
    {"saves", "saves-collective", "removes", "opens", "makes-folder", "trainer-save", "downloads", "loads"}
)
_MEASURES = re.compile(r"(?i)bench|profil|perf|throughput|test|debug")
_CLOCK = re.compile(r"\btime\(\)|perf_counter\(|monotonic\(|Event\(enable_timing|elapsed_time")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each barrier that every step of a training loop comes to."""
    if run.context.is_one_process:
        return
    for found in run.happenings("barrier"):
        event = found.event
        loop = _loop(found)
        if loop is None or event.varies or event.may or _MEASURES.search(event.module.path):
            continue
        if not _is_needless(loop):
            continue
        yield run.finding(
            META,
            event.module,
            event.node,
            "all ranks wait here in every training step: the GPU runs dry, and nothing in the step needs it",
            hint="Leave it out, or move it under the test for what needs it",
            related=(run.location(loop.module, loop.node, "the loop that trains"),),
        )


def _loop(found: Happening) -> Loop | None:
    """Return the loop of steps whose body comes to the event without a test."""
    around = list(found.around)
    for at in range(len(around) - 1, -1, -1):
        node = around[at]
        if isinstance(node, Alt | Try):
            return None
        if isinstance(node, Loop):
            inside = list(events(node.body))
            tags = frozenset().union(*(other.tags for other in inside))
            is_inner = not any(isinstance(n, Loop) and _trains(n) for n in _loops(node))
            return node if tags & _TRAINS and tags & _STEPS and is_inner else None
    return None


def _trains(loop: Loop) -> bool:
    return any(event.tags & _TRAINS for event in events(loop.body))


def _loops(loop: Loop) -> Iterator[Loop]:
    yield from (node for node in walk(loop.body) if isinstance(node, Loop))


def _is_needless(loop: Loop) -> bool:
    """Return whether a turn measures no time, and does nothing that others wait for but behind a test."""
    if _CLOCK.search(loop.module.text(loop.node)):
        return False
    plain = [node for node in loop.body.items if not isinstance(node, Alt)]
    return not any(event.tags & _NEEDS for node in plain for event in _without_tests(node))


def _without_tests(node: object) -> Iterator[Event]:
    if isinstance(node, Event):
        yield node
    elif isinstance(node, Call):
        for inner in node.body.items:
            yield from _without_tests(inner)


_SCRIPT = """\
import time

import torch
from accelerate import Accelerator


def main(loader, every):
    accelerator = Accelerator()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for step, batch in enumerate(loader):
            accelerator.backward(model(batch).mean())
            optimizer.step()
            optimizer.zero_grad()
%s
%s
        accelerator.wait_for_everyone()


main(load_data(), 100)
"""
_SAVES = """\
            if step % every == 0:
                accelerator.wait_for_everyone()
                accelerator.save_state("out")"""
_WAITS = "            accelerator.wait_for_everyone()"
_TIMED = "            accelerator.wait_for_everyone()\n            print(time.perf_counter())"

EXAMPLES = (
    bad("in every step", {"train.py": _SCRIPT % (_WAITS, _SAVES)}, at="train.py:17 warning"),
    good("where it is saved", {"train.py": _SCRIPT % ("", _SAVES)}),
    good("for a measurement", {"train.py": _SCRIPT % (_TIMED, "")}),
)
