"""Each rank cuts its batch into as many pieces as its own data need, and runs a collective for each piece.

**What.** A batch is cut by a budget (tokens, pixels, nodes): `ceil(lengths.sum() / max_tokens)` pieces, or a new piece
as soon as `used + n > max_tokens`. The loop over the pieces runs the forward or backward of a model that DDP, FSDP or
ZeRO-3 has wrapped, or another collective, and the number of pieces was never agreed upon.

**Why it hurts.** Batches of equal size hold different numbers of tokens, so that one rank has 5 pieces and another 6.
The rank with fewer continues to its optimizer step or to the norm of the gradients, the other waits for it in the next
forward: the job hangs, at a step that depends on the data.

**Fix.** Reduce the number first (`dist.all_reduce(count, op=dist.ReduceOp.MAX)`, or the `dp_group` argument of helpers
that offer one), and cut into that many pieces on all ranks.

**When it stays quiet.** The number went through a collective; pieces of a fixed number of rows; nothing in the loop
talks to other ranks; `join()`; one process.

**Evidence.** Two gloo ranks, DDP: 2 pieces on one rank and 3 on the other stall; with the larger number on both they
pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.derived import Derived
from dslint.python.queries.parting import Parting
from dslint.python.source import Module
from dslint.python.varies import DATA, NAMED_DATA, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks import parted
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL682",
    name="micro-batches-by-own-data",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank cuts its batch into as many pieces as its own data need, and a collective runs for each piece",
    markers=(
        r"\bfor\b",
        r"ceil|//|>=?",
        r"DistributedDataParallel|DDP|deepspeed|accelerat|FullyShardedDataParallel|FSDP|fully_shard|all_reduce|all_gather",
    ),
    references=("https://github.com/verl-project/verl/issues/6176",),
    depends_on_run=True,
)
_SUMS = re.compile(r"\bsum\(|\.sum\(|\.item\(|\.numel\(|\.tolist\(|cumsum")
_OF_ROWS = re.compile(r"len\(|\.shape\[0\]|\.size\((?:dim=)?0\)|world|rank")
_JOINED = re.compile(r"\.join\(\)")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loop over pieces of the rank's own data that runs a collective for each."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    told = {id(found.event.node) for found in run.occurrences("collective")}
    for _, parting in run.partings:
        node = parting.test.node
        if not _is_over_own_data(parting) or not isinstance(node, ast.For) or id(node) in seen:
            continue
        cut = _cut(run.derived, parting.test.module, node.iter, told)
        if cut is not None and not _JOINED.search(parted.around(parting)):
            seen.add(id(node))
            yield _finding(run, parting, node, cut)


def _is_over_own_data(parting: Parting) -> bool:
    own = bool(parting.varies & (DATA | NAMED_DATA)) and not parting.varies & RANKED
    return parting.is_loop and own and not parting.event.may and not parting.is_certain


def _cut(derived: Derived, module: Module, subject: ast.expr, told: set[int]) -> tuple[Module, ast.AST] | None:
    """Return the code that decides into how many pieces the data are cut, where no collective takes part in it."""
    pieces = [(home, list(ast.walk(piece))) for home, piece in derived.of(module, [subject]) or []]
    if any(id(node) in told or _gets_group(node) for _, nodes in pieces for node in nodes):
        return None
    for home, nodes in pieces:
        for node in nodes:
            if _rounds(derived, home, node) or _fills(node):
                return home, node
    return None


def _gets_group(node: ast.AST) -> bool:
    """Return whether a call gets a group over which it may agree: `cut(batch, dp_group=group)`."""
    given = node.keywords if isinstance(node, ast.Call) else []
    return any("_group" in (k.arg or "") and ast.unparse(k.value) != "None" for k in given)


def _rounds(derived: Derived, module: Module, node: ast.AST) -> bool:
    """`math.ceil(sum(lengths) / budget)`, `total // budget`: a sum over the data, divided by a budget."""
    inner = node
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("ceil", "int") and node.args:
        inner = node.args[0]
        if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Div):
            return False
    elif not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv):
        return False
    assert isinstance(inner, ast.BinOp)
    if _OF_ROWS.search(ast.unparse(inner.right)):
        return False
    return any(_is_sum(piece) for _, piece in derived.of(module, [inner.left]) or [])


def _is_sum(piece: ast.AST) -> bool:
    return isinstance(piece, ast.expr) and _SUMS.search(ast.unparse(piece)) is not None


def _fills(node: ast.AST) -> bool:
    """`if used + n > budget: pieces.append(...)`: a new piece begins where the last one is full."""
    tests = [n for n in ast.walk(node.test) if isinstance(n, ast.Compare)] if isinstance(node, ast.If) else []
    has_sum = any(
        isinstance(test.ops[0], ast.Gt | ast.GtE)
        and isinstance(test.left, ast.BinOp)
        and isinstance(test.left.op, ast.Add)
        for test in tests
    )
    body = [n for part in node.body for n in ast.walk(part)] if isinstance(node, ast.If) and has_sum else []
    return any(
        isinstance(n, ast.Yield)
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "append")
        for n in body
    )


def _finding(run: RunQuery, parting: Parting, node: ast.For, cut: tuple[Module, ast.AST]) -> Finding:
    module = parting.test.module
    return run.finding(
        META,
        module,
        node,
        f"the number of pieces depends on this rank's data: ranks with more hang in `{parted.called(run, parting)}`",
        hint="Reduce the number of pieces over all ranks first (`dist.ReduceOp.MAX`), and cut into as many on each",
        related=(
            run.location(*cut, "decides how many there are"),
            run.location(*parted.place(parting), "needs every rank each time"),
        ),
        varies=parting.varies,
        origin=parted.origin(run, parting),
        facts={"pieces": "own"},
    )


_TRAIN = """\
import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from pieces import cut


def main(net, rows, optimizer):
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net)
    loader = DataLoader(rows, batch_size=32, sampler=DistributedSampler(rows, shuffle=False))
    for batch in loader:
        pieces = cut(batch, 4096)
        optimizer.zero_grad()
        for piece in pieces:
            model(piece).mean().backward()
        optimizer.step()


main(load(), load(), load())
"""
_CEIL = """\
import math

import torch
import torch.distributed as dist


def cut(batch, budget):
    lengths = batch["mask"].sum(1).tolist()
    count = math.ceil(sum(lengths) / budget)
%s    return [batch["ids"][at::count] for at in range(count)]
"""
_AGREE = """\
    agreed = torch.tensor([count])
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
    count = int(agreed.item())
"""
_FILL = """\
def cut(batch, budget):
    pieces, now, used = [], [], 0
    for row in batch["rows"]:
        n = int(row["mask"].sum())
        if used + n > budget:
            pieces.append(now)
            now, used = [], 0
        now.append(row)
        used += n
    pieces.append(now)
    return pieces
"""
_ROWS = """\
def cut(batch, budget):
    return batch["ids"].split(8)
"""

EXAMPLES = (
    bad("A sum of lengths by a budget", {"pieces.py": _CEIL % "", "train.py": _TRAIN}, at="train.py:18"),
    bad("A piece is full", {"pieces.py": _FILL, "train.py": _TRAIN}, at="train.py:18"),
    good("The ranks agree", {"pieces.py": _CEIL % _AGREE, "train.py": _TRAIN}),
    good("Pieces of eight rows", {"pieces.py": _ROWS, "train.py": _TRAIN}),
    good("One process", {"pieces.py": _CEIL % "", "train.py": _TRAIN}, world_size=1),
)
