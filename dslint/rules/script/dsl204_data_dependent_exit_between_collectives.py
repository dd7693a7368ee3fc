"""One rank skips a step, or leaves the loop, because of its own data.

**What.** A test on the data of this rank (`torch.isnan(loss)`, `len(batch) == 0`, `mask.sum() == 0`) decides over a
collective: `continue`, `break` or `return` before `model_engine.backward(...)`, `loss.backward()` of a DDP model or an
`all_reduce`, or the collective stands in one branch only.

**Why it hurts.** The other ranks do not see this batch and go on: their backward waits for the rank that skipped, until
the process-group timeout. When each rank skips one batch at another step, nothing hangs, and gradients of different
steps are averaged without a word.

**Fix.** Let the ranks agree first: `flag = torch.isnan(loss).float(); dist.all_reduce(flag, op=dist.ReduceOp.MAX)`, and
let all of them skip; or keep the graph and multiply the loss by 0.

**When it stays quiet.** The tested value went through an `all_reduce`, `gather` or `broadcast`; the test asks for a
step counter, an argument, a shape, a key or `None`, which are usually the same on all ranks; the branch raises (the
launcher then ends the other ranks); both branches run the same collectives; no engine, DDP model or collective is in
sight.

**Evidence.** Two ranks: a `continue` on a NaN loss, or on a caught out-of-memory error, on one rank of a DDP model
leaves the other in its backward until the timeout; with the flag reduced first both pass (torch 2.13). One public
ZeRO-3 example skips batches whose mask is empty in this way.
"""

from __future__ import annotations

import ast
import re

from dslint.core.finding import Severity
from dslint.model.script.marked import defined, ranks_of
from dslint.model.script.precheck import may_skip_collective
from dslint.model.script.quick import Flat, call_name, expression_name, flat
from dslint.model.script.traces.data import DataDivergence
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.snippets import DDP_LOOP
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL204",
    name="data-dependent-exit-between-collectives",
    kind="script",
    severity=Severity.WARNING,
    summary="one rank skips a collective because of its own data, and the others wait for it",
    markers=(
        r"isnan|isinf|isfinite|\blen\(|\.sum\(|\.item\(|numel\(|time\(|perf_counter|rank|RANK|is_main|process_index",
        r"backward\(|all_reduce|all_gather|\.step\(|barrier\(|\.gather\(|broadcast",
        r"DistributedDataParallel|DDP|deepspeed|accelerat|FullyShardedDataParallel|FSDP|fully_shard|distributed",
    ),
    references=(
        "https://github.com/pytorch/pytorch/issues/38174",
        "https://pytorch.org/docs/stable/notes/ddp.html",
    ),
)


def precheck(tree: ast.Module) -> bool:
    """A loop branches on its data, or on what one rank knows, and some test decides over what waits for other ranks."""
    nodes = flat(tree)
    asks = _sets_on_some(nodes) or _asks_for_nan(nodes) or (_has_own_data(nodes) and _asks_in_loop(nodes))
    return asks and may_skip_collective(tree)


def _has_own_data(nodes: Flat) -> bool:
    """Some name is that of a loader or of what makes one, or the clock is read: all that differs between ranks."""
    used = {n.attr for n in nodes.nodes(ast.Attribute)} | {n.id for n in nodes.nodes(ast.Name)}
    renamed = {n.name for n in nodes.nodes(ast.alias) if n.asname}
    called = {call_name(n) for n in nodes.nodes(ast.Call)}
    return any(map(_LOADER.search, used | renamed)) or not _SOURCES.isdisjoint(called | renamed)


def _asks_for_nan(nodes: Flat) -> bool:
    """Something is tested for being a number at all: that of a loss needs no loop over batches in sight."""
    return any(call_name(n) in _NOT_A_NUMBER for n in nodes.nodes(ast.Call))


def _asks_in_loop(nodes: Flat) -> bool:
    """A test inside a loop asks for a sum, a length, a NaN or the time, or for a variable that holds such an answer."""
    asking = {c for c in nodes.nodes(ast.Call) if call_name(c) in _ASKING}
    if not asking:
        return False
    functions = [nodes.order[at] for at in nodes.places(ast.FunctionDef)]
    holders = {defined(f) for f in functions if any(n in asking for n in nodes.inside(f))}
    asking |= {c for c in nodes.nodes(ast.Call) if call_name(c) in holders}
    told = {
        target.id
        for assign in nodes.nodes(ast.Assign)
        if any(n in asking for n in nodes.inside(assign.value))
        for target in assign.targets
        if isinstance(target, ast.Name)
    }
    for at in nodes.places(ast.For, ast.While, ast.AsyncFor):
        for node in nodes.order[at : nodes.ends[at]]:
            if isinstance(node, ast.If | ast.While):
                inside = nodes.inside(node.test)
                if any(n in asking or (isinstance(n, ast.Name) and n.id in told) for n in inside):
                    return True
    return False


def _sets_on_some(nodes: Flat) -> bool:
    """A variable that is tested is assigned a call or comparison behind a test of the rank."""
    ranks = ranks_of(nodes)

    def is_by_rank(test: ast.expr) -> bool:
        return _asks_for_rank(nodes, test) and ranks.inside(nodes.place(test))

    for assign in nodes.nodes(ast.Assign):
        choice = next((n for n in nodes.inside(assign.value) if isinstance(n, ast.IfExp)), None)
        if choice is not None and is_by_rank(choice.test) and _is_tested(nodes, assign.targets[0], nodes.order[0]):
            return True
    for node in nodes.nodes(ast.If):
        if not is_by_rank(node.test):
            continue
        for inner in nodes.inside(node):
            target: ast.expr | None = inner.target if isinstance(inner, ast.AugAssign) else None
            if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call | ast.Compare):
                target = inner.targets[0]
            # What a function does behind its own test of the rank is told from that of others.
            if target is not None and _is_tested(nodes, target, nodes.function(inner)):
                return True
    return False


def _is_tested(nodes: Flat, target: ast.expr, scope: ast.AST) -> bool:
    """A test in a scope asks for what is assigned: for the variable, or for an item of one."""
    start = nodes.place(scope)
    tests = (nodes.order[at] for at in nodes.places(ast.If, ast.While) if start <= at < nodes.ends[start])
    parts = (part for node in tests if isinstance(node, ast.If | ast.While) for part in nodes.inside(node.test))
    if isinstance(target, ast.Subscript):
        name = expression_name(target.value)
        return any(isinstance(part, ast.Subscript) and expression_name(part.value) == name for part in parts)
    return isinstance(target, ast.Name) and any(isinstance(p, ast.Name) and p.id == target.id for p in parts)


def _asks_for_rank(nodes: Flat, test: ast.expr) -> bool:
    """The test, or a variable in it, has a name that speaks of ranks."""
    for node in nodes.inside(test):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
        if _RANK.search(name):
            return True
    return False


_RANK = re.compile(r"rank|main|master|process_zero|process_index", re.I)
# By a name like these a variable is a loader; ``DataLoader`` under another name is imported by its own.
_LOADER = re.compile(r"loader|^(?:train|data)_?iter", re.I)
_CLOCKS = frozenset({"time", "perf_counter", "monotonic", "now"})
# Clocks, and calls that return a loader among other things.
_SOURCES = _CLOCKS | {"prepare", "initialize"}
_NOT_A_NUMBER = frozenset({"isnan", "isinf", "isfinite"})
_ASKING = _NOT_A_NUMBER | frozenset({"item", "sum", "len", "any", "all", "numel", "count_nonzero"})
_ASKING |= _CLOCKS


class Check(ScriptCheck):
    """Reports tests of one rank's data that decide over collectives."""

    def finish(self) -> None:
        """One finding a test."""
        for found in self.ctx.data_divergences.tests():
            self._report(found)

    def _report(self, found: DataDivergence) -> None:
        test = self.ctx.text(found.node)
        name = self.ctx.text(found.op.call.func)
        what = "skips" if found.skips else "makes"
        others = "the other ranks wait for it there" if found.skips else "the other ranks do not come"
        related = [self.ctx.location(found.op.call, "what the ranks do not share")]
        cause = "looks at the data of this rank alone"
        if found.variant is not None:
            label = "each rank has data of its own from here"
            if found.variant.is_lone:
                cause, label = "is set on some ranks only and nothing tells the others", "only some ranks come here"
            elif found.variant.is_clock:
                cause, label = "reads the clock of this rank", "no two ranks pass a limit at the same step"
            related.append(self.ctx.location(found.variant.source, label))
        self.report(
            found.node,
            f"`{test}` {cause}, and a rank for which it is true {what} `{name}`: {others}"
            " until the process-group timeout, or take its next call for this one",
            hint="Reduce the flag over all ranks first (`dist.all_reduce(flag, op=dist.ReduceOp.MAX)`), so that all of"
            " them decide alike; or multiply the loss by 0",
            related=tuple(related),
            facts={"collective": found.op.key, "family": found.op.collective.family},
        )


def _loop(body: str) -> str:
    return DDP_LOOP + body


EXAMPLES = (
    bad(
        "A batch with a NaN loss is skipped by the rank that has it",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        if torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()
""")
        },
        "train.py:10",
    ),
    bad(
        "The step is a function, and the loop that calls it stands elsewhere",
        {
            "train.py": """\
import deepspeed
import torch


class Step:
    def __init__(self, args, model):
        self.engine, _, _, _ = deepspeed.initialize(args=args, model=model)

    def __call__(self, batch):
        loss = self.engine(**batch).loss
        if not torch.isfinite(loss):
            return None
        self.engine.backward(loss)
        self.engine.step()
        return loss
"""
        },
        "train.py:11",
    ),
    bad(
        "An empty batch on one rank",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        if len(batch) == 0:
            continue
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
"""
        },
        "train.py:7",
    ),
    bad(
        "Only rank 0 knows whether to stop",
        {
            "train.py": """\
import os

import torch.distributed as dist


def train(steps, path, grads):
    for _ in range(steps):
        stop = False
        if dist.get_rank() == 0:
            stop = os.path.exists(path)
        if stop:
            break
        dist.all_reduce(grads)
"""
        },
        "train.py:11",
    ),
    good(
        "Rank 0 tells the others",
        {
            "train.py": """\
import os

import torch.distributed as dist


def train(steps, path, grads):
    for _ in range(steps):
        stop = [False]
        if dist.get_rank() == 0:
            stop[0] = os.path.exists(path)
        dist.broadcast_object_list(stop, src=0)
        if stop[0]:
            break
        dist.all_reduce(grads)
"""
        },
    ),
    good(
        "Rank 0 tells the others in a list, and keeps its own value",
        {
            "train.py": """\
import os

import torch.distributed as dist

RANK = int(os.getenv("RANK", -1))


def train(model, epochs, stopper, loader, validate):
    stop = False
    for epoch in range(epochs):
        for batch in loader:
            dist.all_reduce(batch)
        if RANK in {-1, 0}:
            stop = stopper(epoch=epoch, fitness=validate(model))
        if RANK != -1:
            told = [stop if RANK == 0 else None]
            dist.broadcast_object_list(told, 0)
            if RANK != 0:
                stop = told[0]
        if stop:
            break
"""
        },
    ),
    good(
        "The ranks agree before they skip",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item() > 0:
            continue
        loss.backward()
        optimizer.step()
""")
        },
    ),
    good(
        "A step counter is the same on all ranks",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        loss.backward()
        if step % 4 == 0:
            continue
        optimizer.step()
        if step >= limit:
            break
""")
        },
    ),
    good(
        "The job ends for all",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        if not torch.isfinite(loss):
            raise ValueError("the loss is not finite")
        loss.backward()
        optimizer.step()
""")
        },
    ),
    good(
        "The loss counts as zero, and every rank goes on",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        if torch.isnan(loss):
            loss = torch.nan_to_num(loss) * 0
        loss.backward()
        optimizer.step()
""")
        },
    ),
    good(
        "Only the printing depends on the data",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        if loss.item() > 10:
            print("high")
""")
        },
    ),
)
