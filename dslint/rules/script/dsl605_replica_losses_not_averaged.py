"""The loss that `DataParallel` returns is a vector of one number a GPU, and `backward` takes a single number.

**What.** A module in `torch.nn.DataParallel` computes its loss inside of `forward`, and the script calls `backward()`
on what the wrapper returns, without `mean()` or `sum()` in between.

**Why it hurts.** The wrapper runs a replica on each GPU and gathers what they return: of scalars it makes a vector.
With one GPU the script works, with two or more `backward` raises `grad can be implicitly created only for scalar
outputs` in the first step.

**Fix.** `loss = model(batch).mean()`, or `DistributedDataParallel` with a process for each GPU.

**When it stays quiet.** `mean` or `sum` of the loss anywhere in the function, also under a test of the number of GPUs;
`backward` with a gradient; a wrapper of one device; a loss that is computed from the outputs outside of the wrapper.

**Evidence.** `Gather.forward` in torch/nn/parallel/_functions.py (2.13): scalars become a vector, with the warning `Was
asked to gather along dimension 0, but all input tensors were scalars`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL605",
    name="replica-losses-not-averaged",
    kind="script",
    severity=Severity.WARNING,
    summary="the loss that `DataParallel` returns is a vector, and `backward` takes a single number",
    markers=(r"DataParallel",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",
        "https://github.com/huixiancheng/CENet/issues/8",
    ),
    no_experiment="takes two GPUs in one process",
    depends_on_run=True,
)
_FORWARD = "torch.nn.DataParallel.forward"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_REDUCE = frozenset({"mean", "sum"})
# What hands on the tensor that it gets.
_KEEPS = frozenset({"scale", "float", "to", "cuda"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each `backward` of what a wrapper with several devices returns."""
    calls = {found.event.node: found.event for found in run.occurrences("forward") if _is_replicated(run, found.event)}
    told: set[ast.AST] = set()
    for found in run.occurrences("backward") if calls else ():
        event = found.event
        gradient = event.arguments.get("gradient")
        if event.node in told or event.open or (gradient is not None and gradient.constants != (None,)):
            continue
        call = _source(event, calls)
        if call is None:
            continue
        told.add(event.node)
        wrapper = next((run.makers[atom] for atom in instances(call.receiver) if atom in run.makers), call)
        yield run.finding(
            META,
            event.module,
            event.node,
            "This loss has one number for each GPU of `DataParallel`, and `backward` takes a single number",
            hint="Take the mean over the GPUs: `loss = model(batch).mean()`",
            related=(
                run.location(call.module, call.node, "the wrapper gathers the losses of its replicas"),
                run.location(wrapper.module, wrapper.node, "a replica on each GPU"),
            ),
        )


def _is_replicated(run: RunQuery, event: Event) -> bool:
    """Return whether a call runs replicas on several devices, as far as the wrapper says."""
    makers = [run.makers[atom] for atom in instances(event.receiver) if atom in run.makers]
    return event.api == _FORWARD and not any(map(_is_of_one, makers))


def _is_of_one(maker: Event) -> bool:
    devices = maker.nodes.get("device_ids")
    return isinstance(devices, ast.List) and len(devices.elts) == 1


def _source(event: Event, calls: dict[ast.AST, Event]) -> Event | None:
    """Return the call of a wrapper whose result, as it is, a `backward` gets in the same function."""
    if not isinstance(event.node, ast.Call) or not isinstance(event.node.func, ast.Attribute):
        return None
    scope = _function(event.module, event.node)
    pending, seen = [event.node.func.value], set[str]()
    found: Event | None = None
    while pending:
        node = pending.pop()
        if node in calls:
            found = calls[node]
        elif isinstance(node, ast.Name) and node.id not in seen:
            seen.add(node.id)
            pending += _assigned(scope, node.id)
        elif isinstance(node, ast.BinOp):
            pending += [node.left, node.right]
        elif isinstance(node, ast.Attribute | ast.Subscript):
            pending.append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS:
            pending += [*node.args, node.func.value]
    return None if found is None or _is_reduced(scope, seen) else found


def _function(module: Module, node: ast.AST) -> ast.AST:
    found: ast.AST = module.tree
    for function in module.nodes:
        if isinstance(function, _FUNCTIONS) and any(inner is node for inner in ast.walk(function)):
            found = function
    return found


def _assigned(scope: ast.AST, name: str) -> list[ast.expr]:
    found = []
    for node in ast.walk(scope):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.Assign) and any(
            isinstance(part, ast.Name) and part.id == name for target in targets for part in ast.walk(target)
        ):
            found.append(node.value)
    return found


def _is_reduced(scope: ast.AST, names: set[str]) -> bool:
    """Return whether one of the variables is averaged or added up and assigned again, in some branch."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in _REDUCE
            for n in ast.walk(node.value)
        ):
            stored = {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            if stored & names:
                return True
    return False


_NET = """\
import torch
from torch import nn


class WithLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images, labels):
        logits = self.net(images)
        return %s
"""
_TRAIN = """\
import torch

from net import WithLoss


def main(loader):
    model = torch.nn.DataParallel(WithLoss(torch.nn.Linear(4, 2)).cuda()%s)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        %s
        optimizer.zero_grad()
        %s
        optimizer.step()


if __name__ == "__main__":
    main(torch.load("loader.pt"))
"""
_SCALAR = "nn.functional.cross_entropy(logits, labels)"
_LOSS = "loss = model(images, labels)"


def _files(loss: str = _LOSS, step: str = "loss.backward()", result: str = _SCALAR, device: str = "") -> dict[str, str]:
    return {"net.py": _NET % result, "train.py": _TRAIN % (device, loss, step)}


EXAMPLES = (
    bad("the loss of the wrapper", _files(), "train.py:12 warning"),
    bad("the first of what it returns, divided",
        _files("loss, logits = model(images, labels)", "(loss / 4).backward()", f"{_SCALAR}, logits"),
        "train.py:12 warning"),
    bad("scaled for mixed precision", _files(step="torch.amp.GradScaler().scale(loss).backward()"),
        "train.py:12 warning"),
    good("the mean over the GPUs", _files("loss = model(images, labels).mean()")),
    good("the mean where there are several GPUs",
         _files(step="if torch.cuda.device_count() > 1:\n            loss = loss.mean()\n        loss.backward()")),
    good("a loss outside of the wrapper", _files(
        "loss = torch.nn.functional.cross_entropy(model(images, labels), labels)", result="logits")),
    good("one device", _files(device=", device_ids=[0]")),
    good("a gradient for each replica", _files(step="loss.backward(torch.ones_like(loss))")),
)  # fmt: skip
