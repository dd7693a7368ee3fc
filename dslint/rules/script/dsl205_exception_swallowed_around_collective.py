"""An exception on one rank is caught, and the rank goes on without the step that the others make.

**What.** The body of a `try` runs a forward, `backward` or `step` of an engine or DDP model; a handler for
`Exception`, `RuntimeError`, `torch.cuda.OutOfMemoryError` or the like logs it and goes on (`continue`, `pass`,
`return`).

**Why it hurts.** Out of memory, a broken sample or a NaN check strikes one rank, at one step. The others stand in the
backward of that step and wait. When the rank comes back with its next batch, its calls pair up with the wrong calls of
the others: the job hangs at the end, or sums belong to different steps and nothing says so.

**Fix.** Let the exception end the job, and resume from a checkpoint; or catch it around the loading of the data only;
or let the ranks agree (`all_reduce` of a flag) before any of them makes the step.

A handler that makes a collective of its own (it saves a last checkpoint of the engine, or waits at a barrier) is
reported too: the rank that has failed waits there, the others in the step.

**When it stays quiet.** `KeyboardInterrupt`, which all ranks get, and the end of the loader
(`except StopIteration: break`). A `try` that comes to its end is the failure (`else:
raise`, `assert 0` behind it), or the function is a test, so that the exception is expected everywhere; the handler ends
with `raise`, `sys.exit(1)`, `os._exit(1)` or `os.abort()`; it makes the same calls as the body; the body holds no call
of a distributed model (in a loop: nor a function of the file that makes one). The severity is *error* where the handler
goes on with the loop.

**Evidence.** Two ranks of a DDP model: out of memory caught on one rank ends in the timeout of the other; a swallowed
`ValueError` before an `all_reduce` made one rank receive the sum of another record, 21 instead of 30, with exit code 0
(torch 2.13).
"""

from __future__ import annotations

import ast
from bisect import bisect_left

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import Flat, call_name, flat
from dslint.model.script.traces.data import DataDivergence
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.snippets import DDP_LOOP
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL205",
    name="exception-swallowed-around-collective",
    kind="script",
    severity=Severity.ERROR,
    summary="a caught exception lets one rank go on without the step that the others make",
    markers=(
        r"\n[ \t]+except\b",
        r"\.backward\(|\.step\(|train_batch\(",
        r"DistributedDataParallel|DDP|deepspeed|accelerat|FullyShardedDataParallel|FSDP|fully_shard",
    ),
    references=("https://github.com/pytorch/pytorch/issues/38174",),
)
_TRAINING = frozenset({"backward", "step", "train_batch"})


def precheck(tree: ast.Module) -> bool:
    """A ``try`` whose body trains, or calls a function of the file that does."""
    nodes = flat(tree)
    tries = [at for kind in (ast.Try, getattr(ast, "TryStar", ast.Try)) for at in nodes.places(kind)]
    if not tries:
        return False
    training = [nodes.place(c) for c in nodes.nodes(ast.Call) if call_name(c) in _TRAINING]
    names = {f.name for f in nodes.nodes(ast.FunctionDef) if _holds(nodes, f, training)}
    calls = [nodes.place(c) for c in nodes.nodes(ast.Call) if call_name(c) in names] if names else []
    return any(_holds(nodes, nodes.order[at], sorted((*training, *calls))) for at in tries)


def _holds(nodes: Flat, node: ast.AST, calls: list[int]) -> bool:
    """Some of the places stand in the body, which is neither the header of a function nor what handles exceptions."""
    spans = ((nodes.place(s), nodes.ends[nodes.place(s)]) for s in getattr(node, "body", []))
    return any(bisect_left(calls, start) < bisect_left(calls, end) for start, end in spans)


class Check(ScriptCheck):
    """Reports handlers that let one rank skip a step."""

    def finish(self) -> None:
        """One finding a handler."""
        for found in self.ctx.data_divergences.handlers():
            function = self.ctx.enclosing_function(found.node)
            if function is None or not function.name.value.startswith("test"):  # a test provokes it on every rank
                self._report(found)
        for node, handler in self.ctx.data_divergences.catching():
            function = self.ctx.enclosing_function(node)
            is_test = function is not None and function.name.value.startswith("test")
            if not is_test and self.ctx.loaders.trains(node.body):
                self._look_into(node, handler)

    def _look_into(self, node: cst.Try | cst.TryStar, handler: cst.CSTNode) -> None:
        """What only the rank that has met the exception calls, and what waits for the others."""
        for call in self.ctx.tree.own_nodes(handler):
            event = self.ctx.summaries.event(call) if isinstance(call, cst.Call) else None
            if event is None or event.guard is not None or event.collectives[0].needs_stage3:
                continue
            key = event.collectives[0].key
            what = f"`{self.ctx.text(event.call.func)}`"
            what += "" if event.through is None else f", which runs `{key}`"
            self.report(
                event.call,
                f"a rank that catches an exception of its own calls {what}, and waits there for the other ranks, which"
                " are still in the code above: the job hangs, and the exception is not seen",
                hint="Let the exception end the job; save regularly in the loop, which all ranks run",
                related=(self.ctx.location(node.body, "one rank may fail here"),),
                severity=Severity.WARNING,
                facts={"collective": key, "family": event.collectives[0].family},
            )
            return

    def _report(self, found: DataDivergence) -> None:
        name = self.ctx.text(found.op.call.func)
        goes_on = bool(self.ctx.loops(found.node))
        then = "goes on with the loop" if goes_on else "goes on"
        self.report(
            self.ctx.location(_header(found.node)),
            f"a rank that catches the exception {then} without `{name}`, which the other ranks wait in until the"
            " process-group timeout; later calls of this rank pair up with the wrong calls of the others",
            hint="Let the exception end the job, catch it around the loading of data only, or let all ranks agree to"
            " skip the step",
            related=(self.ctx.location(found.op.call, "the others wait here"),),
            severity=Severity.ERROR if goes_on else Severity.WARNING,
            facts={"collective": found.op.key, "family": found.op.collective.family},
        )


def _header(node: cst.CSTNode) -> cst.CSTNode:
    """The exception type of a handler, or the handler."""
    kind = node.type if isinstance(node, cst.ExceptHandler | cst.ExceptStarHandler) else None
    return kind if kind is not None else node


EXAMPLES = (
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
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    batches = iter(loader)
    while True:
        try:
            engine.backward(engine(next(batches)))
            engine.step()
        except StopIteration:
            break
"""
        },
    ),
    good(
        "The user has stopped all ranks, and one of them writes what it knows",
        {
            "train.py": """\
import deepspeed
import torch.distributed as dist


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    try:
        run(engine, loader)
    except KeyboardInterrupt:
        engine.save_checkpoint(args.out)
    except RuntimeError as error:
        print("failed", error)
        raise
    finally:
        dist.destroy_process_group()


def run(engine, loader):
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()
"""
        },
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
