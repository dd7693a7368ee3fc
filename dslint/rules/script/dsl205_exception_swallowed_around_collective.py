"""An exception on one rank is caught, and the rank continues without the step that the others make.

**What.** The body of a `try` runs a forward, `backward` or `step` of an engine or DDP model; a handler for
`Exception`, `RuntimeError`, `torch.cuda.OutOfMemoryError` or the like logs it and continues (`continue`, `pass`,
`return`).

**Why it hurts.** Out of memory, a broken sample or a NaN check strikes one rank, at one step. The others are in the
backward of that step and wait. When the rank comes back with its next batch, its calls pair up with the wrong calls of
the others: the job hangs at the end, or sums belong to different steps and nothing says so.

**Fix.** Let the exception end the job, and resume from a checkpoint; or catch it around the loading of the data only;
or let the ranks agree (`all_reduce` of a flag) before any of them makes the step.

A handler that makes a collective of its own (it saves a last checkpoint of the engine, or waits at a barrier) is
reported too: the rank that has failed waits there, the others in the step.

A collective (`all_reduce`, `gather`, `barrier`) that follows work on an item of the loop inside the `try` is left out
in the same way by the rank whose item fails.

**When it stays quiet.** `KeyboardInterrupt`, which all ranks get, and the end of the loader
(`except StopIteration: break`). A `try` that comes to its end is the failure (`else:
raise`, `assert 0` after it), or the function is a test, so that the exception is expected everywhere; the handler ends
with `raise`, `sys.exit(1)`, `os._exit(1)` or `os.abort()`; it makes the same calls as the body; the body holds no call
of a distributed model (in a loop: nor a function of the file that makes one). The severity is *error* where the handler
continues with the loop.

**Evidence.** Two ranks of a DDP model: out of memory caught on one rank ends in the timeout of the other; a swallowed
`ValueError` before an `all_reduce` made one rank receive the sum of another record, 21 instead of 30, with exit code 0
(torch 2.13).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event, Loop, events, walk
from dslint.python.queries.caught import Caught, handlers
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.rankscripts import LOADER_ENDS, RECORD_COUNTED, RECORD_SKIPPED, USER_STOPS
from dslint.rules.examples.snippets import DDP_LOOP
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL205",
    name="exception-swallowed-around-collective",
    kind="script",
    severity=Severity.ERROR,
    summary="a caught exception lets one rank continue without the step that the others make",
    markers=(
        r"\n[ \t]+except\b",
        r"\.backward\(|\.step\(|train_batch\(|all_reduce|all_gather|gather\(|gather_object|broadcast|barrier\(|reduce\("
        r"|wait_for_everyone",
        r"DistributedDataParallel|DDP|deepspeed|accelerat|FullyShardedDataParallel|FSDP|fully_shard|distributed",
    ),
    references=("https://github.com/pytorch/pytorch/issues/38174",),
    depends_on_run=True,
)
_BACKWARD = frozenset({"backward", "engine-backward"})
# A test provokes the exception on every rank.
_TEST = re.compile(r"test")


def query(run: RunQuery) -> Iterator[Finding]:
    """Yield the handlers that let one rank go on without a step of the others, or wait for them alone."""
    seen: set[int] = set()
    for _, tree in run.trees():
        for found in handlers(tree):
            if id(found.handler) in seen or _TEST.match(getattr(_function(found), "name", "")):
                continue
            told = _told(run, found)
            if told is not None:
                seen.add(id(found.handler))
                yield told


def _told(run: RunQuery, found: Caught) -> Finding | None:
    missed = _missed(run, found)
    if missed is None:
        return None
    waits = next((event for event in events(found.block) if run.waits.of(event) and not event.may), None)
    if waits is not None:
        return _waiting(run, found, waits)
    return _going_on(run, found, missed) if not found.ends else None


def _missed(run: RunQuery, found: Caught) -> Event | None:
    """Return what waits for the other ranks in the body: the backward pass, or what comes after work on own items.

    None where the handler makes the same call.
    """
    waiting = [event for event in events(found.node.body) if run.waits.of(event) and not event.may]
    event = next((event for event in waiting if event.tags & _BACKWARD), None)
    if event is not None:
        return None if any(e.tags & _BACKWARD for e in events(found.block)) else event
    instead = {e.api for e in events(found.block) if run.waits.of(e)}
    return next((e for e in waiting if e.api not in instead and _works_before(found, e)), None)


def _works_before(found: Caught, event: Event) -> bool:
    """Return whether the body does something with an item of the loop around before it comes to an event."""
    loop = next((n for n in reversed(found.around) if isinstance(n, Loop)), None)
    if loop is None or not isinstance(loop.node, ast.For) or not isinstance(found.node.node, ast.Try):
        return False
    at = _line_in(found, event)
    names = {n.id for n in ast.walk(loop.node.target) if isinstance(n, ast.Name)}
    for statement in found.node.node.body:
        calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and n.lineno < at]
        if any(isinstance(n, ast.Name) and n.id in names for call in calls for n in ast.walk(call)):
            return True
    return False


def _line_in(found: Caught, event: Event) -> int:
    """Return the line of a `try` that leads to an event: of the event, or of the call of a function that makes it."""
    block, module = found.node.node, found.node.module
    first, last = getattr(block, "lineno", 0), getattr(block, "end_lineno", 0)
    calls = (n for n in walk(found.node.body) if isinstance(n, Call))
    places = [(n.module, n.node) for n in calls if any(e is event for e in events(n.body))]
    places.append((event.module, event.node))
    lines = [getattr(node, "lineno", 0) for own, node in places if own is module]
    return min((line for line in lines if first <= line <= last), default=0)


def _function(found: Caught) -> object:
    call = next((node for node in reversed(found.around) if isinstance(node, Call)), None)
    return getattr(call.function, "node", None) if call is not None else None


def _waiting(run: RunQuery, found: Caught, event: Event) -> Finding:
    name = run.text(event.module, getattr(event.node, "func", event.node))
    return run.finding(
        META,
        event.module,
        event.node,
        f"a rank that catches its own exception calls `{name}` and waits there for the others: the job hangs,"
        " and hides the exception",
        hint="Let the exception end the job; save regularly in the loop, which all ranks run",
        related=(run.location(found.node.module, found.node.node, "one rank may fail here"),),
        severity=Severity.WARNING,
        facts={"collective": event.api.rpartition(".")[2], "family": "run"},
    )


def _going_on(run: RunQuery, found: Caught, missed: Event) -> Finding:
    name = run.text(missed.module, getattr(missed.node, "func", missed.node))
    then = "continues the loop" if found.is_repeated else "continues"
    return run.finding(
        META,
        found.node.module,
        found.handler.type or found.handler,
        f"a rank that catches the exception {then} without `{name}`: the others hang, or its next calls mismatch",
        hint="Let the exception end the job, catch it around the loading of data only, or let all ranks agree to skip"
        " the step",
        related=(run.location(missed.module, missed.node, "the others wait here"),),
        severity=Severity.ERROR if found.is_repeated else Severity.WARNING,
        facts={"collective": missed.api.rpartition(".")[2], "family": "run"},
    )


_TRAINER = """\
import torch
from torch.nn.parallel import DistributedDataParallel

from task import step


class Trainer:
    def __init__(self, model):
        self.own, self.wrapped = model, None

    @property
    def model(self):
        if self.wrapped is None:
            self.wrapped = DistributedDataParallel(self.own)
        return self.wrapped

    def train_step(self, samples):
        for sample in samples:
            try:
                step(self.model, sample)
            except RuntimeError as error:
                if "out of memory" not in str(error):
                    raise
                %s
"""
_TASK = """\
def step(model, sample):
    model(sample).mean().backward()
"""
_START = """\
import torch
import torch.distributed as dist

from trainer import Trainer

dist.init_process_group("gloo")
trainer = Trainer(torch.nn.Linear(8, 8))
for sample in torch.randn(10, 4, 8):
    trainer.train_step([sample])
"""

EXAMPLES = (
    bad(
        "Forward and backward pass are in another module",
        {"train.py": _START, "task.py": _TASK, "trainer.py": _TRAINER % "torch.cuda.empty_cache()"},
        "trainer.py:21 error",
    ),
    good(
        "Another step takes its place",
        {"train.py": _START, "task.py": _TASK, "trainer.py": _TRAINER % "step(self.model, 0 * sample)"},
    ),
    good(
        "The handler ends the job",
        {"train.py": _START, "task.py": _TASK, "trainer.py": _TRAINER % "raise SystemExit(1)"},
    ),
    bad(
        "The rank that has failed saves a last checkpoint",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    try:
        run(engine, loader)
    except Exception:
        engine.save_checkpoint(args.out)
        raise


def run(engine, loader):
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()
"""
        },
        "train.py:9 warning",
    ),
    good(
        "The end of the loader, which comes on all ranks",
        {"train.py": LOADER_ENDS},
    ),
    good(
        "The user has stopped all ranks, and one of them writes what it knows",
        {"train.py": USER_STOPS},
    ),
    bad(
        "The step is a function of the file",
        {
            "train.py": """\
import deepspeed


class Training:
    def __init__(self, args, model):
        self.engine, _, _, _ = deepspeed.initialize(args=args, model=model)

    def step(self, batch):
        loss = self.engine(batch)
        self.engine.backward(loss)
        self.engine.step()

    def run(self, loader):
        for batch in loader:
            try:
                self.step(batch)
            except RuntimeError as error:
                print("skipping", error)
"""
        },
        "train.py:17",
    ),
    bad(
        "Out of memory is caught, and the rank takes the next batch",
        {
            "train.py": DDP_LOOP
            + """\
        try:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
"""
        },
        "train.py:13",
    ),
    bad(
        "Only the message of one kind of error is looked at",
        {
            "train.py": """\
import deepspeed


def step(args, model, batch):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    try:
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        print("skipping")
"""
        },
        "train.py:10 warning",
    ),
    good(
        "The handler aborts the process, and with it the job",
        {
            "train.py": "import os\n"
            + DDP_LOOP
            + """\
        try:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        except RuntimeError:
            os.abort()
"""
        },
    ),
    bad(
        "A broken record is skipped by the rank that reads it, before the sum over all ranks",
        {"count.py": RECORD_SKIPPED},
        "count.py:14",
    ),
    good(
        "What may fail is done before, and every rank comes to the sum",
        {"count.py": RECORD_COUNTED},
    ),
    good(
        "The exception is what is expected, on every rank",
        {
            "check.py": """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def check(model, rank):
    model = DDP(model, device_ids=[rank])
    out = model(torch.rand(4, 4))
    try:
        out.sum().backward()
    except RuntimeError:
        return
    assert 0
"""
        },
    ),
    good(
        "The handler ends the job",
        {
            "train.py": DDP_LOOP
            + """\
        try:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        except RuntimeError:
            print("failed at", step)
            raise
"""
        },
    ),
    good(
        "Only the loading of the sample is tried",
        {
            "train.py": DDP_LOOP
            + """\
        try:
            batch = batch.decode()
        except ValueError:
            batch = batch.empty()
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
"""
        },
    ),
)
