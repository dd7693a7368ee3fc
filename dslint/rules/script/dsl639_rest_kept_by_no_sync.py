"""The last batches of an epoch stay in `no_sync`, and the optimizer steps on them.

**What.** A loop accumulates gradients in groups of `n` micro batches and leaves `no_sync` on every n-th. The optimizer
steps there, and once more on the rest of the epoch: in the last turn (`or step + 1 == len(loader)`) or after the loop.

**Why it hurts.** Where the number of batches is not a multiple of `n`, all micro batches of the rest run in `no_sync`,
so that no rank has seen the gradients of the others. Each rank steps with its own, the weights of the ranks part at the
end of the first epoch, and nothing raises.

**Fix.** Leave `no_sync` in the last turn, too: `(step + 1) % n != 0 and step + 1 != len(loader)`;
or do not step on the rest.

**When it stays quiet.** `no_sync` that asks for anything else about the turn than its place in the group; a file that
exchanges gradients itself; a forward or backward pass between the loop and the step after it; `accelerator.accumulate`,
which exchanges at the end of a loader; loaders that give a multiple of `n`, as far as the code says so; one process.

**Evidence.** Two gloo ranks, torch 2.13, five micro batches in groups of four: the weights of the ranks differ after
the step on the fifth; with `no_sync` left there they are equal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.queries.turns import Test
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.wrapping import unsynced

META = RuleMeta(
    code="DSL639",
    name="rest-kept-by-no-sync",
    kind="script",
    severity=Severity.WARNING,
    summary="the optimizer steps on the rest of an epoch, whose gradients `no_sync` keeps on their rank",
    markers=(r"\.no_(?:backward_)?sync\b", r"%", r"step\("),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/huggingface/accelerate/blob/main/docs/source/concept_guides/gradient_synchronization.md",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire once for each `no_sync` in a loop whose rest an optimizer steps on."""
    if run.context.is_one_process:
        return
    steps = list(run.occurrences("optimizer-step", "named-step", "scaler-step"))
    seen: set[int] = set()
    for block in unsynced.blocks(run) if steps else ():
        divided = [test for test in block.waits if _divides(block.loop.module, test.node)]
        if not divided or id(divided[0].node) in seen or any(map(_asks_more, block.waits)):
            continue
        if unsynced.exchanges(run, block.loop):
            continue
        found = next((step for step in steps if _takes_rest(run, block, step, steps)), None)
        if found is not None:
            seen.add(id(divided[0].node))
            yield _finding(run, block, divided[0], found.event)


def _takes_rest(run: RunQuery, block: unsynced.Block, step: Happening, steps: list[Happening]) -> bool:
    """Return whether a step runs on what is left of an epoch: in the last turn, or after the loop."""
    loop = block.loop
    if any(node is loop for node in step.around):
        return any(_is_rest(loop, test) for test in block.turns.tests(step.around, step.event))
    if not any(node is loop for other in steps for node in other.around):
        return False  # no step in the loop: the groups are something else
    return _follows(run, loop, step.event)


def _is_rest(loop: Loop, test: Test) -> bool:
    """Return whether a test holds on the last micro batch of each group, and in the last turn of the loop."""
    if not test.holds or test.leaves:
        return False
    parts = list(_disjuncts(test.module, test.node))
    return any(_has_rest(part) for part in parts) and any(_is_last(loop, part) for part in parts)


def _is_last(loop: Loop, node: ast.expr) -> bool:
    """Return whether an expression compares the number of the turn with the number of batches."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.GtE):
        return False
    target = loop.node.target if isinstance(loop.node, ast.For) else None
    turning = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} if target is not None else set()
    sides = (node.left, node.comparators[0])
    turns = [any(isinstance(n, ast.Name) and n.id in turning for n in ast.walk(side)) for side in sides]
    counts = [any(_counts(loop.module, n) for n in ast.walk(side)) for side in sides]
    return (turns[0] and counts[1]) or (turns[1] and counts[0])


def _counts(module: Module, node: ast.AST) -> bool:
    """Return whether a name or call is the number of something."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "len"
    given = _given(module, node) if isinstance(node, ast.Name) else []
    return any(isinstance(value, ast.Call) and _counts(module, value) for value in given)


def _follows(run: RunQuery, loop: Loop, step: Event) -> bool:
    """Return whether a step comes after a loop in the same function, with no pass between them."""
    if step.module is not loop.module or function_around(step.module, step.node) is not function_around(
        loop.module, loop.node
    ):
        return False
    begin, end = getattr(loop.node, "end_lineno", 0), getattr(step.node, "lineno", 0)
    if not begin < end or getattr(step.node, "col_offset", 0) < getattr(loop.node, "col_offset", 0):
        return False
    between = [f.event for f in run.occurrences("backward", "forward", "ddp-forward", "zero-grad")]
    return not any(e.module is loop.module and begin < getattr(e.node, "lineno", 0) < end for e in between)


def _divides(module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.expr) and any(map(_has_rest, _disjuncts(module, node)))


def _has_rest(node: ast.AST) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(node))


def _asks_more(test: Test) -> bool:
    """Return whether a test may know the last turn: it compares something else, or calls something."""
    nodes = [n for part in _disjuncts(test.module, test.node) for n in ast.walk(part)]
    is_compared = any(isinstance(n, ast.Compare) and not _has_rest(n) and not _is_plain(n) for n in nodes)
    return bool(test.leaves) or is_compared or any(isinstance(n, ast.Call) and not _is_len(n) for n in nodes)


def _is_plain(node: ast.Compare) -> bool:
    """Return whether a comparison asks for a constant, as `accumulation > 1` does."""
    return all(isinstance(side, ast.Constant) for side in node.comparators)


def _is_len(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in ("len", "isinstance", "hasattr")


def _disjuncts(module: Module, node: ast.AST, depth: int = 3) -> Iterator[ast.expr]:
    """Yield the parts of a test of which one suffices, with the names that are given once in its function."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _disjuncts(module, value, depth)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _disjuncts(module, node.operand, depth)
    elif isinstance(node, ast.Name) and depth:
        given = _given(module, node)
        for value in given:
            yield from _disjuncts(module, value, depth - 1)
        if not given:
            yield node
    elif isinstance(node, ast.expr):
        yield node


def _given(module: Module, name: ast.Name) -> list[ast.expr]:
    around = function_around(module, name) or module.tree
    return [
        node.value
        for node in ast.walk(around)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name.id for t in node.targets)
    ]


def _finding(run: RunQuery, block: unsynced.Block, asked: Test, step: Event) -> Finding:
    return run.finding(
        META,
        asked.module,
        asked.node,
        "The rest of an epoch stays in `no_sync`, and the optimizer steps on it: the ranks drift apart",
        hint="Leave `no_sync` in the last iteration of the loop too",
        related=(
            run.location(block.context.module, block.context.node, "entered here"),
            run.location(step.module, step.node, "the step"),
        ),
    )


_LOOP = """\
import contextlib
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATION = 4


def main(net, loader):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DDP(net.cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters())
    for step, batch in enumerate(loader):
        is_full = (step + 1) %% ACCUMULATION == 0
        is_last = step == len(loader) - 1
        with contextlib.nullcontext() if %s else model.no_sync():
            (model(batch).mean() / ACCUMULATION).backward()
        if %s:
            optimizer.step()
            optimizer.zero_grad()
"""
_ARMS = """\
import os

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, net, loader, accumulate):
        dist.init_process_group("nccl")
        self.rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.rank)
        self.model = torch.nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[self.rank])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader, self.accumulate = loader, accumulate

    def loss(self, batch):
        return self.model(batch).mean() / self.accumulate

    def epoch(self):
        for i, batch in enumerate(self.loader):
            if (i + 1) %% self.accumulate != 0:
                with self.model.no_sync():
                    self.loss(batch).backward()
            else:
                self.loss(batch).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
%s

def main(net, loader):
    trainer = Trainer(net, loader, 8)
    for _ in range(3):
        trainer.epoch()
"""
_AFTER = """\
        self.optimizer.step()
        self.optimizer.zero_grad()
"""
_CLEARED = "        self.optimizer.zero_grad()\n"

EXAMPLES = (
    bad("in the last turn", {"train.py": _LOOP % ("is_full", "is_full or is_last")}, at="train.py:20 warning"),
    bad(
        "in the last turn, written out",
        {"train.py": _LOOP % ("is_full", "(step + 1) % ACCUMULATION == 0 or (step + 1) == len(loader)")},
        at="train.py:20 warning",
    ),
    bad("after the loop", {"train.py": _ARMS % _AFTER}, at="train.py:21 warning"),
    good("left in the last turn", {"train.py": _LOOP % ("is_full or is_last", "is_full or is_last")}),
    good("the rest is left out", {"train.py": _ARMS % _CLEARED}),
    good("no step on the rest", {"train.py": _LOOP % ("is_full", "is_full")}),
)
