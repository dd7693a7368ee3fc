"""What one rank counts over its share of the samples is divided by the number of all samples.

**What.** A loop goes over the share of a rank (a `DistributedSampler`, or a loader that accelerate prepared) and adds
up hits or losses. The sum is divided by the length of the whole data set: `correct / len(loader.dataset)`. Nothing puts
the sums of the ranks together before.

**Why it hurts.** Each rank has seen an N-th of the samples, so that an accuracy of 92 % is printed as 11.5 % on eight
GPUs, and a loss as an eighth. It changes with the number of GPUs; thresholds, early stopping and comparisons with other
runs go wrong. With one process the same code is right.

**Fix.** Sum over the ranks before the division: `dist.all_reduce(correct)`, or `accelerator.gather_for_metrics(...)` of
the predictions. Or divide by what the rank has counted itself.

**When it stays quiet.** Something reduces or gathers in the function, in one that calls it, or in what it calls; a data
set that is not part of the loader; loaders of which nobody knows that they are divided; one process.

**Evidence.** Two gloo ranks, torch 2.13, ten samples and all answers right: each rank counts five of them and prints
0.5; with the sums reduced before the division 1.0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop, walk
from dslint.python.queries.derived import Derived
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.dividedloaders import divided_loaders
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL648",
    name="own-count-over-all-items",
    kind="script",
    severity=Severity.WARNING,
    summary="what a rank counts over its share of the samples is divided by the number of all samples",
    markers=(r"DistributedSampler|\.prepare\(", r"len\("),
    references=(
        "https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        "https://huggingface.co/docs/accelerate/quicktour#distributed-evaluation",
    ),
    depends_on_run=True,
)
# Whoever has these words puts something together over the ranks.
_JOINS = re.compile(
    r"reduce|gather|\bsync|\bbroadcast|torchmetrics|evaluate\.load|world_size|num_processes|\.send\(|Metric"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each sum of one share that is divided by the number of all items."""
    if run.context.is_one_process or not run.has("wraps-model", "prepares", "makes-engine"):
        return
    divided = divided_loaders(run)
    seen: set[int] = set()
    for _, tree in run.trees() if divided else ():
        for loop in walk(tree):
            if not isinstance(loop, Loop) or not isinstance(loop.node, ast.For) or id(loop.node) in seen:
                continue
            made = [divided[id(node)] for node in loop.items if id(node) in divided]
            if not made or len(made) != len(loop.items):
                continue
            seen.add(id(loop.node))
            scope = function_around(loop.module, loop.node) or loop.module.tree
            found = next(_quotients(run.derived, loop, scope, [*made, *_assigned(run, loop)]), None)
            if found is not None and not _joins(run, loop.module, scope):
                yield _finding(run, loop, found, made[0])


def _quotients(derived: Derived, loop: Loop, scope: ast.AST, made: list[Event]) -> Iterator[ast.BinOp | ast.AugAssign]:
    """Yield the divisions after a loop of what it has added up by the number of all items."""
    sums = {name for node in ast.walk(loop.node) if (name := _added(node))}
    last = getattr(loop.node, "end_lineno", 0)
    for node in ast.walk(scope):
        if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, ast.Div) or node.lineno <= last:
            continue
        left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        named = {ast.unparse(part) for part in ast.walk(left) if isinstance(part, ast.Name | ast.Attribute)}
        if named & sums and _is_all(derived, right, loop, made):
            yield node


def _assigned(run: RunQuery, loop: Loop) -> Iterator[Event]:
    """Yield the calls that made a loader under a name that a loop goes over: `prepare` gives several at once."""
    iterated = {ast.unparse(n) for n in ast.walk(loop.node.iter)} if isinstance(loop.node, ast.For) else set()
    makers = {id(found.event.node): found.event for found in run.happenings("makes-loader")}
    for node in loop.module.nodes_of(ast.Assign):
        if id(node.value) in makers and any(ast.unparse(target) in iterated for target in node.targets):
            yield makers[id(node.value)]


def _added(node: ast.AST) -> str:
    """Return the variable to which a statement adds something that is no constant."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and not isinstance(node.value, ast.Constant):
        is_length = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "len"
        return "" if is_length else ast.unparse(node.target)
    return ""


def _is_all(derived: Derived, node: ast.AST, loop: Loop, made: list[Event]) -> bool:
    """Return whether an expression is the number of items of the data set that the loader goes over."""
    if isinstance(node, ast.Name):
        given = [piece for _, piece in derived.of_name(loop.module, node)]
        return len(given) == 1 and not isinstance(given[0], ast.Name) and _is_all(derived, given[0], loop, made)
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "len" or len(node.args) != 1:
        return False
    counted = ast.unparse(node.args[0])
    iterated = {ast.unparse(n) for n in ast.walk(loop.node.iter)} if isinstance(loop.node, ast.For) else set()
    if counted.endswith(".dataset"):
        return counted.removesuffix(".dataset") in iterated
    nodes = [event.nodes.get("dataset") for event in made]
    return any(inner is not None and ast.unparse(inner) == counted for inner in nodes)


def _joins(run: RunQuery, module: Module, scope: ast.AST) -> bool:
    """Return whether a function, one that calls it, or one that it calls puts something together over the ranks."""
    if isinstance(scope, ast.Module):
        return module.search(_JOINS) is not None
    name = getattr(scope, "name", "")
    called = {n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "") for n in ast.walk(scope)
              if isinstance(n, ast.Call)}  # fmt: skip
    for other in run.machine.program.modules():
        for node in other.functions:
            text = other.text(node)
            is_near = node is scope or node.name in called or re.search(rf"\b{re.escape(name)}\(", text) is not None
            if is_near and _JOINS.search(text):
                return True
    return False


def _finding(run: RunQuery, loop: Loop, found: ast.BinOp | ast.AugAssign, made: Event) -> Finding:
    return run.finding(
        META,
        loop.module,
        found,
        f"`{run.text(loop.module, found, 40)}` divides one rank's sum by the number of all items: it is too small"
        " by the"
        " world size",
        hint="Sum over the ranks before the division, or divide by what the rank has counted",
        related=(
            run.location(loop.module, loop.node, "each rank iterates over its share"),
            run.location(made.module, made.node, "gives each rank its share"),
        ),
    )


_TRAIN = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm


def validate(model, loader):
    correct, seen = 0, 0
    with torch.no_grad():
        for x, y in tqdm(loader):
            correct += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
            seen += len(y)
    return 100 * correct / %s


def main(net, train, val):
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    model = DDP(net.cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(train, 8, sampler=DistributedSampler(train))
    val_loader = DataLoader(val, 8, sampler=DistributedSampler(val, shuffle=False))
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        accuracy = %s
        if dist.get_rank() == 0:
            print(accuracy)
"""
_SUMMED = "torch.distributed.nn.functional.all_reduce(torch.tensor(validate(model, val_loader)).cuda())"
_ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main(net, train, test):
    accelerator = Accelerator()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(train, 8)
    test_loader = DataLoader(test["rows"], 8)
    net, optimizer, loader, test_loader = accelerator.prepare(net, optimizer, loader, test_loader)
    for x, y in loader:
        accelerator.backward(torch.nn.functional.cross_entropy(net(x), y))
        optimizer.step()
        optimizer.zero_grad()
    total = 0.0
    for x, y in test_loader:
        with torch.no_grad():
            hits = net(x).argmax(-1) == y
        total += %s
    size = len(test["rows"])
    accelerator.print(total / size)
"""

EXAMPLES = (
    bad(
        "hits over the data set of the loader",
        {"train.py": _TRAIN % ("len(loader.dataset)", "validate(model, val_loader)")},
        at="train.py:16 warning",
    ),
    bad(
        "a loader that accelerate has prepared",
        {"train.py": _ACCELERATE % "hits.sum().item()", "run.sh": "accelerate launch --num_processes 4 train.py\n"},
        at="train.py:22 warning",
    ),
    bad(
        "a number that the caller passes",
        {
            "train.py": (_TRAIN % ("size", "validate(model, val_loader, len(val))")).replace(
                "(model, loader):", "(model, loader, size):"
            )
        },
        at="train.py:16 warning",
    ),
    good(
        "by what the rank has counted, or reduced",
        {
            "own.py": _TRAIN % ("seen", "validate(model, val_loader)"),
            "summed.py": _TRAIN % ("len(loader.dataset)", _SUMMED),
        },
    ),
    good("gathered", {"train.py": _ACCELERATE % "accelerator.gather_for_metrics(hits).sum().item()"}),
)
