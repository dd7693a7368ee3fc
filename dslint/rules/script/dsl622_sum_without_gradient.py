"""A part of the loss is summed over the ranks by `torch.distributed.all_reduce`, which autograd does not see.

**What.** A statistic of the model's outputs (a cross-correlation matrix, a mean, a denominator) is made global with
`dist.all_reduce(c)`, and the loss is computed from `c`.

**Why it hurts.** The forward is right: `c` holds the sum. In the backward the call does nothing: each rank gets the
gradient of its own share, and the wrapper then divides the sum of the ranks' gradients by their number. The gradient
of this loss is 1/N of the true one on N GPUs. Nothing fails; its weight against other losses, and the learning rate
that fits, change with the number of GPUs.

**Fix.** `c = torch.distributed.nn.functional.all_reduce(c)`, whose backward sums too.

**When it stays quiet.** What is reduced is the loss itself, or carries no gradient (counts, `detach()`, `no_grad`); the
mean is requested by `ReduceOp.AVG`; the factor is put back by hand; the call is in an `autograd.Function`; the
result does not come to a backward pass.

**Evidence.** Two gloo ranks, torch 2.13: the gradient of a DDP model with the loss of a summed statistic is half of
that with `torch.distributed.nn.functional.all_reduce`, which is that of the whole batch on one rank.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.names import names_of
from dslint.python.queries.skipped import is_frozen
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.copies import assigned
from dslint.rules.wrapping.ddps import is_sum, is_wrapper, losses_through, reduces_gradients

META = RuleMeta(
    code="DSL622",
    name="sum-without-gradient",
    kind="script",
    severity=Severity.WARNING,
    summary="a part of the loss is summed over the ranks by a call that autograd does not see",
    markers=(r"all_reduce\(", r"\bbackward\("),
    references=(
        "https://github.com/lightly-ai/lightly/issues/1977",
        "https://pytorch.org/docs/stable/distributed.html#autograd-enabled-communication-primitives",
    ),
    depends_on_run=True,
)
_TAG = "passes-gradient"
# In a Function of autograd a backward pass is written by hand.
_BY_HAND = re.compile(r"def \w+\(\s*ctx\b")
# The loss itself, whose gradient is one; what has no gradient; a factor that is put back.
_LOSS = re.compile(r"(?i)loss|objective|\bobjf?\b")
_NO_GRADIENT = re.compile(r"detach|\.data\b|no_grad|argmax|one_hot|topk|\.item\(|[^-<>=!][<>]=?[^<>]|[!=]=|\.numel\(")
_FACTOR = re.compile(r"(?i)\*=?\s*(?:\w+\.)*(?:get_)?world_?size|world_?size(?:\(\))?\s*\*")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each sum of a statistic of a wrapped model that a loss is made of."""
    if run.context.is_one_process or not run.has(_TAG):
        return
    losses = losses_through(run, _TAG)
    seen: set[int] = set()
    for found in run.occurrences(_TAG) if losses else ():
        event = found.event
        loss = next((loss for atom, loss in losses if atom.node is event.node), None)
        if loss is None or _is_itself(event, loss) or id(event.node) in seen or not _carries_gradient(run, found):
            continue
        seen.add(id(event.node))
        yield run.finding(
            META,
            event.module,
            event.node,
            f"Autograd does not see `{event.api.rpartition('.')[2]}`: the gradient through"
            f" `{run.text(event.module, event.nodes['tensor'], 30)}` is too small by the number of ranks",
            hint="Use `torch.distributed.nn.functional.all_reduce`, which returns the sum and has a backward",
            related=(run.location(loss.module, loss.node, "the backward pass of a loss made of it"),),
        )


def _is_itself(event: Event, loss: Event) -> bool:
    """Return whether the backward pass begins at the tensor that the ranks add up: its gradient is one."""
    return not set(instances(event.arguments.get("tensor"))).isdisjoint(instances(loss.receiver))


def _carries_gradient(run: RunQuery, found: Happening) -> bool:
    """Return whether a plain sum of what a wrapped model gives is no loss by itself."""
    event = found.event
    node = event.nodes.get("tensor")
    behind = event.snapshot.get("tensor", (0, 0, frozenset()))[2]
    if node is None or event.may or not any(is_wrapper(run, atom) for atom in behind):
        return False
    if any(is_frozen(around) for around in found.around) or reduces_gradients(event) or not is_sum(event):
        return False
    scope = function_around(event.module, event.node) or event.module.tree
    text = event.module.text(scope) if scope is not event.module.tree else event.module.code
    if _LOSS.search(ast.unparse(node)) or _BY_HAND.search(text) or _FACTOR.search(text):
        return False
    values = assigned(scope, node.id) if isinstance(node, ast.Name) else []
    names = names_of(event.module.tree)
    return not any(_NO_GRADIENT.search(ast.unparse(names.behind(value))) for value in (node, *values))


_LOSSES = """\
import torch
import torch.distributed as dist
import torch.distributed.nn


class Twins(torch.nn.Module):
    def forward(self, first, second):
        c = first.T @ second / len(first)
        if dist.is_initialized() and dist.get_world_size() > 1:
            %s
        on = (torch.diagonal(c) - 1).pow(2).sum()
        return on + 0.005 * (c.pow(2).sum() - torch.diagonal(c).pow(2).sum())
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from losses import Twins


def main(loader, rank):
    dist.init_process_group("gloo")
    model, criterion = DDP(torch.nn.Linear(8, 8).to(rank)), Twins()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for a, b in loader:
        optimizer.zero_grad()
        criterion(model(a), model(b)).backward()
        optimizer.step()
"""
_MEAN = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def global_mean(rows):
    mean = rows.mean(dim=0)
    dist.all_reduce(mean%s)
    return mean / dist.get_world_size()


def variance(rows):
    return (rows - global_mean(%s)).square().mean()


def main(loader):
    dist.init_process_group("gloo")
    model = FSDP(torch.nn.Linear(8, 8))
    for x in loader:
        variance(model(x)).backward()
"""
_PLAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(8, 8))
    for x, y in loader:
        out = model(x)
        %s
        loss.backward()
"""
_DENOMINATOR = """\
scores = out.exp()
        total = scores.sum()
        dist.all_reduce(total)
        loss = -(scores[y] / total).log().mean()"""
_POSITIVE = """\
hits = (out > 0).sum()
        dist.all_reduce(hits)
        print(hits)
        loss = (out - y).square().mean() + 0.0 * hits"""
_LOGGED = "loss = out.mean()\n        seen = out.sum()\n        dist.all_reduce(seen)\n        print(seen)"
_ITSELF = """\
loss = (out - y).square().mean()
        dist.all_reduce(loss)"""
_SUMMED = "c = c / dist.get_world_size()\n            dist.all_reduce(c)"

EXAMPLES = (
    bad("a cross-correlation matrix", {"train.py": _TRAIN, "losses.py": _LOSSES % _SUMMED}, "losses.py:11 warning"),
    bad("a mean by a helper, under FSDP", {"train.py": _MEAN % ("", "rows")}, "train.py:8 warning"),
    bad("a denominator", {"train.py": _PLAIN % _DENOMINATOR}, "train.py:13 warning"),
    good("with a backward", {
        "train.py": _TRAIN, "losses.py": _LOSSES % "c = torch.distributed.nn.all_reduce(c) / dist.get_world_size()"}),
    good("the mean of the library", {"train.py": _MEAN % (", op=dist.ReduceOp.AVG", "rows")}),
    good("without gradient", {"train.py": _MEAN % ("", "rows.detach()")}),
    good("a number of rows", {"train.py": _PLAIN % _POSITIVE}),
    good("the loss itself", {"train.py": _PLAIN % _ITSELF}),
    good("no part of the loss", {"train.py": _PLAIN % _LOGGED}),
)  # fmt: skip
