"""What the ranks have put together is discarded, or carries no gradient.

**What.** A gather whose result is the only place where the values of the other ranks are (`torch.distributed.nn`,
`accelerator.gather`, `self.all_gather`) is a statement of its own. Or a model's outputs go through
`torch.distributed.all_gather`, and the loss is computed from what comes back.

**Why it hurts.** Without the result a helper continues with the values of its own rank, and metrics and contrastive
losses see a part of the batch, whatever the number of GPUs. Through `torch.distributed.all_gather` no gradient flows,
also not into this rank's own rows: a tower whose outputs are only used after the gather is not trained by this loss.
Nothing fails.

**Fix.** Use the result. For a gather with gradients `torch.distributed.nn.functional.all_gather`, or put this rank's
own tensor back into its slot of the list.

**When it stays quiet.** The own tensor is put back; `no_grad`, `detach()`; gathers of an `autograd.Function`; what is
gathered does not come to the loss; a gather of constants, which only waits.

**Evidence.** Two gloo ranks, torch 2.13: the weight after the gathered rows has no gradient; with the own rows put
back it has one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.skipped import is_frozen
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.wrapping.ddps import losses_through

META = RuleMeta(
    code="DSL299",
    name="gathered-values-lost",
    kind="script",
    severity=Severity.WARNING,
    summary="the result of a gather is discarded, or no gradient flows through it into the loss",
    markers=(r"torch|accelerat|lightning|horovod|init_process_group",),
    references=(
        "https://pytorch.org/docs/stable/distributed.html",
        "https://github.com/3dlg-hcvc/DuoduoCLIP/issues/10",
    ),
    depends_on_run=True,
)
# In a Function of autograd a backward pass is written by hand.
_BY_HAND = re.compile(r"def \w+\(\s*ctx\b")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on gathers whose result is no part of any expression, and on those that cut a loss off from the model."""
    if run.context.is_one_process:
        return
    for found in run.happenings("gives-gathered"):
        event = found.event
        if not event.may and _is_statement(event) and not _only_waits(event):
            yield _thrown_away(run, event)
    losses = losses_through(run, "cuts-gradient")
    seen: set[int] = set()
    for found in run.occurrences("cuts-gradient") if losses else ():
        loss = next((loss for atom, loss in losses if atom.node is found.event.node), None)
        if loss is not None and id(found.event.node) not in seen and _carries_gradient(found):
            seen.add(id(found.event.node))
            yield _cut_off(run, found.event, loss)


def _thrown_away(run: RunQuery, event: Event) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        f"The result of `{event.api.rpartition('.')[2]}` is discarded: it alone holds the values of the others",
        hint="Use or return the result; call `barrier()` where the ranks should only wait",
        facts={"kind": "result"},
    )


def _is_statement(event: Event) -> bool:
    return any(node.value is event.node for node in event.module.nodes_of(ast.Expr))


def _only_waits(event: Event) -> bool:
    """A gather of what is made in place, as a barrier."""
    node = next(iter(event.nodes.values()), None)
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Constant)
    return not any(isinstance(n, ast.Name) for a in node.args for n in ast.walk(a)) and bool(node.args)


def _carries_gradient(found: Happening) -> bool:
    """What is gathered comes from a wrapped model, and its own rows do not come back into the list."""
    event = found.event
    given = [name for name in ("tensor", "input_tensor") if name in event.snapshot]
    if not any(event.snapshot[name][2] for name in given) or any(is_frozen(node) for node in found.around):
        return False
    function = getattr(found.calls[-1].function, "node", None) if found.calls else event.module.tree
    text = event.module.text(event.nodes[given[0]]) if given[0] in event.nodes else ""
    if "detach" in text or function is None or _BY_HAND.search(event.module.text(function)):
        return False
    return not _is_cut_before(found) and not any(_fills_slot(node, event) for node in ast.walk(function))


def _is_cut_before(found: Happening) -> bool:
    """A caller detaches what it hands over: it wants no gradient from there."""
    return any(
        "detach(" in call.module.text(function)
        for call in found.calls[-1:]
        for function in call.module.nodes_of(ast.FunctionDef)
        if function.lineno <= call.node.lineno <= (function.end_lineno or 0)  # type: ignore[attr-defined]
    )


def _fills_slot(node: ast.AST, event: Event) -> bool:
    """`parts[rank] = own`, or another way to write into what was gathered."""
    filled = next((event.nodes[name] for name in ("tensor_list", "output_tensor") if name in event.nodes), None)
    if not isinstance(node, ast.Assign) or filled is None:
        return False
    slots = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
    return any(ast.dump(slot) == ast.dump(filled).replace("Store()", "Load()") for slot in slots)


def _cut_off(run: RunQuery, event: Event, loss: Event) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        f"No gradient flows through `{event.api.rpartition('.')[2]}`: what is gathered here is not trained by the loss",
        hint="Put this rank's own tensor back into its slot, or use `torch.distributed.nn.functional.all_gather`",
        related=(run.location(loss.module, loss.node, "the backward pass of what was gathered"),),
        facts={"kind": "gradient"},
    )


_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from losses import contrast


def main(loader, local_rank):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(8, 8).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        contrast(model(x), model(y)).backward()
        optimizer.step()
"""
_LOSS = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F


def gathered(rows):
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
%s    return torch.cat(parts)


def contrast(queries, keys):
    scores = queries @ gathered(keys).T
    wanted = torch.arange(len(queries), device=queries.device) + dist.get_rank() * len(queries)
    return F.cross_entropy(scores, wanted)
"""
_GATHER = "    dist.all_gather(parts, rows)\n"
_SLOT = _GATHER + "    parts[dist.get_rank()] = rows\n"
_NO_GRAD = "    with torch.no_grad():\n        dist.all_gather(parts, rows)\n"
_CLASS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Loss(nn.Module):
    def forward(self, features, labels):
        everything = features.new_empty(dist.get_world_size() * len(features), features.shape[1])
        dist.all_gather_into_tensor(everything, features)
        return nn.functional.cross_entropy(everything @ everything.T, labels)


def main(loader):
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(8, 8))
    loss = Loss()
    for x, y in loader:
        loss(model(x), y).backward()
"""
_THROWN = """\
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_fn


def gathered(tensor):
    if dist.get_world_size() > 1:
        %sdist_fn.all_gather(tensor)
    return (tensor,)


def main(loader, model):
    dist.init_process_group("nccl")
    for x in loader:
        torch.cat(gathered(model(x))).mean().backward()
"""
_METRIC = """\
from accelerate import Accelerator


def main(model, loader):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(model, loader)
    scores = []
    for x, y in loader:
        hits = (model(x).argmax(1) == y).float()
        %s
        scores.append(hits)
    return scores
"""

EXAMPLES = (
    bad("a helper of another file", {"train.py": _TRAIN, "losses.py": _LOSS % _GATHER}, at="losses.py:8 warning"),
    bad("what two calls of the helper give, put together", {
        "train.py": _TRAIN, "losses.py": (_LOSS % _GATHER).replace(
            "queries @ gathered(keys).T", "queries @ torch.cat([gathered(keys), gathered(queries)]).T")},
        at="losses.py:8 warning"),
    bad("a module of its own", {"train.py": _CLASS}, at="train.py:10 warning"),
    bad("a helper without return", {"train.py": _THROWN % ""}, at="train.py:8 warning"),
    bad("accelerate", {"train.py": _METRIC % "accelerator.gather_for_metrics(hits)"}, at="train.py:10 warning"),
    good("the own rows", {"train.py": _TRAIN, "losses.py": _LOSS % _SLOT}),
    good("without gradients", {"train.py": _TRAIN, "losses.py": _LOSS % _NO_GRAD}),
    good("returned", {"train.py": _THROWN % "return "}),
    good("kept", {"train.py": _METRIC % "hits = accelerator.gather_for_metrics(hits)"}),
)  # fmt: skip
