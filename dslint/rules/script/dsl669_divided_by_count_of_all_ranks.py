"""A loss or its gradients are divided by the count of all ranks, and the wrapper averages over the ranks once more.

**What.** The number of tokens (boxes, samples) is added up over the ranks with `all_reduce`, and the sum of each rank's
losses is divided by it, or the gradients are, while the model is in `DistributedDataParallel` or FSDP.

**Why it hurts.** These wrappers take the mean of the gradients over the ranks: they divide by the number of ranks.
The mean over all tokens needs their sum. So the gradients are too small by the number of ranks: the learning
rate of SGD falls with every GPU that is added, and a limit for the norm never acts. Nothing fails.

**Fix.** Multiply by the number of ranks: `loss = total * dist.get_world_size() / tokens`, or divide the count by it.

**When it stays quiet.** The number of ranks, by whatever name, is in what is computed; a count over a smaller
group; a reduction that is not a sum; a wrapper that is told to divide by something else; gradients that are averaged by
hand; one process.

**Evidence.** Two gloo ranks, torch 2.13: the gradients of a DDP model whose losses are divided by the count of both
ranks are half of those of one process with all samples; times the number of ranks they are the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.names import spelled
from dslint.python.queries.quotients import Place, Quotients, Traced
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.ddps import averaging_wrap, sums_over_ranks
from dslint.rules.zero.enginenames import loss_of

META = RuleMeta(
    code="DSL669",
    name="divided-by-count-of-all-ranks",
    kind="script",
    severity=Severity.WARNING,
    summary="a loss is divided by the count of all ranks, and the wrapper divides by the number of ranks once more",
    markers=(r"all_reduce\(", r"backward", r"DistributedDataParallel|DDP|FullyShardedDataParallel|FSDP|fully_shard"),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/meta-pytorch/torchtune/pull/2172",
    ),
    depends_on_run=True,
)
_RANKS = re.compile(
    r"(?i)world|replica|num_?proc|n_?gpu|dp_(?:size|degree)|devices|parallel_size|nproc|\bsize\(\)|\bdp\b"
)
# What averages gradients in another way.
_TOLD = re.compile(
    r"register_comm_hook|gradient_divide_factor|set_reduce_scatter_divide|predivide|reduce\w*\([^)]*grad"
    r"|(?:average|reduce|sync)_grad"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each division by a sum over the ranks in what is trained."""
    if run.context.is_one_process or not run.has("backward"):
        return
    wrap = averaging_wrap(run)
    modules = list(run.machine.program.modules())
    if wrap is None or any(module.search(_TOLD) for module in modules):
        return
    quotients = Quotients(modules, [tree for _, tree in run.trees()])
    sums = sums_over_ranks(run, quotients)
    seen: set[ast.AST] = set()
    for traced, starts in _trained(run, quotients) if sums else ():
        if _knows(traced):
            continue
        for place, below in [*traced.divisions, *starts]:
            inside = quotients.trace(below.module, below.node)
            added = next((sums[name] for name in inside.names if name in sums), None)
            if added is not None and place.node not in seen and not _knows(inside):
                seen.add(place.node)
                yield _finding(run, place, added, wrap)


def _knows(traced: Traced) -> bool:
    """Return whether a number may be computed with the number of ranks."""
    return not traced.is_whole or any(_RANKS.search(spelled(piece.module.tree, piece.node)) for piece in traced.pieces)


def _trained(run: RunQuery, quotients: Quotients) -> Iterator[tuple[Traced, list[tuple[Place, Place]]]]:
    """Yield what losses are computed of, and the factors of gradients; with what gradients are divided by at once."""
    for found in run.happenings("backward"):
        event, loss = found.event, loss_of(found.event)
        if loss is not None:
            yield quotients.trace(event.module, loss), []
    for module in run.machine.program.modules():
        for node in module.nodes if ".grad" in module.code else ():
            factor, divides = _factor(node)
            if factor is not None:
                scope = quotients.scope(module, node)
                starts = [(Place(module, scope, node), Place(module, scope, factor))] if divides else []
                yield quotients.trace(module, factor), starts


def _factor(node: ast.AST) -> tuple[ast.AST | None, bool]:
    """Return by what a gradient is multiplied or divided in place, and whether it is divided."""
    if isinstance(node, ast.AugAssign) and _is_gradient(node.target) and isinstance(node.op, ast.Mult | ast.Div):
        return node.value, isinstance(node.op, ast.Div)
    func = node.func if isinstance(node, ast.Call) and node.args else None
    if isinstance(func, ast.Attribute) and func.attr in ("mul_", "div_") and _is_gradient(func.value):
        return node.args[0], func.attr == "div_"  # type: ignore[attr-defined]
    return None, False


def _is_gradient(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == "grad"


def _finding(run: RunQuery, place: Place, added: Event, wrap: Event) -> Finding:
    return run.finding(
        META,
        place.module,
        place.node,
        f"`{run.text(place.module, place.node, 40)}` divides by a count of all ranks, but the wrapper divides by the"
        " world size too",
        hint="Multiply by the number of ranks (`dist.get_world_size()`): the wrapper takes the mean of the gradients",
        related=(
            run.location(added.module, added.node, "sums the count over the ranks"),
            run.location(wrap.module, wrap.node, "averages the gradients over the ranks"),
        ),
    )


_TRAIN = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


def scale(model, factor):
    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(factor)


def loss_of(logits, labels):
    total = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
    count = (labels != -100).sum()
    dist.all_reduce(count)
    return %s


def main(loader, rank):
    dist.init_process_group("nccl")
    model = torch.nn.Linear(8, 8).to(rank)
    %s
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        loss = loss_of(model(images), labels)
        loss.backward()
        %s
        optimizer.step()
        optimizer.zero_grad()
"""
_DDP, _SHARD = "model = DDP(model, device_ids=[rank])", "fully_shard(model)"
_GLOBAL, _RIGHT = "total / count.clamp(min=1)", "total * dist.get_world_size() / count.clamp(min=1)"
_SCALED = (_TRAIN % ("total", _SHARD, "%s")).replace(
    "        loss.backward()\n",
    "        loss.backward()\n        tokens = (labels != -100).sum()\n        dist.all_reduce(tokens)\n",
)

EXAMPLES = (
    bad("a loss", {"train.py": _TRAIN % (_GLOBAL, _DDP, "pass")}, "train.py:18 warning"),
    bad("a loss under FSDP", {"train.py": _TRAIN % ("total.div(count)", _SHARD, "pass")}, "train.py:18 warning"),
    bad("gradients", {"train.py": _SCALED % "scale(model, 1.0 / tokens.item())"}, "train.py:31 warning"),
    bad(
        "gradients at once",
        {"train.py": _SCALED % "for p in model.parameters():\n            p.grad /= tokens"},
        "train.py:32 warning",
    ),
    good("times the number of ranks", {"train.py": _TRAIN % (_RIGHT, _DDP, "pass")}),
    good("gradients times the number of ranks", {"train.py": _SCALED % "scale(model, world_size / tokens.item())"}),
    good("no wrapper", {"train.py": _TRAIN % (_GLOBAL, "pass", "average_gradients(model)")}),
    good(
        "the mean of the counts",
        {
            "train.py": (_TRAIN % (_GLOBAL, _DDP, "pass")).replace(
                "    dist.all_reduce(count)\n",
                "    dist.all_reduce(count)\n    count = count / dist.get_world_size()\n",
            )
        },
    ),
    good("for the log", {"train.py": _TRAIN % ("total", _DDP, "print(loss.item() / len(loader))")}),
)
