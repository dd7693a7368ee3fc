"""Gradients are summed over the ranks by hand, and nothing divides the sum.

**What.** A script without DDP reduces its gradients itself, `dist.all_reduce(parameter.grad)`, with the default
operation, which adds; neither the sum nor the loss nor the learning rate is divided by the number of processes before
SGD steps.

**Why it hurts.** The step grows with the number of GPUs: eight processes take a step that is eight times as long as the
one that the learning rate was chosen for. Training becomes unstable or diverges on more GPUs, and no error says why;
clipping by a norm hides a part of it.

**Fix.** Divide the sum, `parameter.grad /= dist.get_world_size()`, ask for the mean (`op=dist.ReduceOp.AVG`, NCCL
only), or wrap the model in `DistributedDataParallel`, which takes the mean.

**When it stays quiet.** With optimizers whose step has the same length for a gradient of any size (Adam and its
relatives, RMSprop, Adagrad); where a function that handles gradients divides or multiplies anything; where a loss or
a rate is divided by anything but a constant; in groups of their own; beside a wrapped model or an engine.

**Evidence.** Two ranks, torch 2.13, SGD: after three steps the weights are those of steps of twice the length; with the
sum divided they are those of one process that sees both batches.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import all_come
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.schedules import knows_world
from dslint.rules.wrapping.ddps import is_of_all, is_sum, reduces_gradients

META = RuleMeta(
    code="DSL786",
    name="gradients-summed-not-averaged",
    kind="script",
    severity=Severity.WARNING,
    summary="gradients are summed over the ranks by hand, and nothing divides the sum before SGD steps",
    markers=(r"\ball_reduce|\breduce\(", r"grad", r"SGD"),
    references=(
        "https://pytorch.org/tutorials/intermediate/dist_tuto.html",
        "https://github.com/alexis-jacq/Pytorch-DPPO/issues/7",
    ),
    depends_on_run=True,
)
_WRAPPED = ("wraps-model", "prepares", "makes-engine", "trainer-train", "compiles")
_PLAIN = re.compile(r"torch\.optim(?:\.\w+)*\.(?:SGD|ASGD)$")
_SCALES = re.compile(r"^(?:div|mul|true_divide|divide|multiply|scale)\w*$|^_foreach_(?:div|mul)_?$")
_SCALED = re.compile(r"loss|\blr\b|_lr\b|rate|grad", re.I)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_QUOTIENTS = (ast.Div, ast.Mult, ast.FloorDiv)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first sum of gradients that nothing divides."""
    if run.context.is_one_process or run.has(*_WRAPPED) or not run.has("backward", "optimizer-step"):
        return
    reduced = next((found for found in run.happenings("collective") if _sums_gradients(run, found)), None)
    made = [found.event for found in run.occurrences("makes-optimizer")]
    if reduced is None or not made or not all(_PLAIN.search(event.api) for event in made):
        return
    if any(_scales(module) for module in run.machine.program.modules()):
        return
    yield run.finding(
        META,
        reduced.event.module,
        reduced.event.node,
        "gradients are summed over the ranks, and nothing divides the sum: each step grows with the number of GPUs",
        hint="Divide by the number of processes: `parameter.grad /= dist.get_world_size()`",
        related=(run.location(made[0].module, made[0].node, "its step is as long as the gradient"),),
    )


def _sums_gradients(run: RunQuery, found: Happening) -> bool:
    """Return whether all ranks of a script certainly come to a sum of gradients over all of them."""
    event = found.event
    is_whole = all_come(run, found) and not event.open
    return is_whole and is_sum(event) and is_of_all(event) and reduces_gradients(event)


def _scales(module: Module) -> bool:
    """Return whether a module divides or multiplies gradients, or a loss or a rate by the number of processes."""
    if any(_scales_gradients(function) for function in module.nodes if isinstance(function, _FUNCTIONS)):
        return True
    if not any(isinstance(node, _FUNCTIONS) for node in module.nodes) and _scales_gradients(module.tree):
        return True
    statements = (node for node in module.nodes if isinstance(node, ast.stmt) and not hasattr(node, "body"))
    return any(_SCALED.search(ast.unparse(s)) and any(_is_fraction(n) for n in ast.walk(s)) for s in statements)


def _scales_gradients(function: ast.AST) -> bool:
    inner = list(ast.walk(function))
    if not any((isinstance(n, ast.Attribute) and n.attr == "grad") or _is_gradient(n) for n in inner):
        return False
    return any(_is_quotient(node) for node in inner)


def _is_gradient(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id.startswith(("grad", "flat_grad"))


def _is_quotient(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.Div) or (isinstance(node.op, ast.Mult) and isinstance(node, ast.AugAssign))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and bool(_SCALES.match(node.func.attr))


def _is_fraction(node: ast.AST) -> bool:
    """Return whether something is divided by what may be the number of processes, or multiplied with that."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant):
        return True
    is_scaled = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, _QUOTIENTS)
    return (is_scaled or _is_quotient(node)) and knows_world(node)


_SYNC = """\
import torch
import torch.distributed as dist


def sync(model):
    %s


def mean_of(value):
    told = torch.tensor(float(value))
    dist.all_reduce(told)
    return (told / dist.get_world_size()).item()
"""
_EACH = "for parameter in model.parameters():\n        dist.all_reduce(parameter.grad.data%s)%s"
_FLAT = """grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    at = 0
    for g in grads:
        g.copy_(flat[at : at + g.numel()].view_as(g)%s)
        at += g.numel()"""
_TRAIN = """\
import torch
import torch.distributed as dist

from sync import mean_of, sync


def main(rows):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.%s(model.parameters(), lr=%s)
    for x in rows:
        optimizer.zero_grad()
        loss = model(x[dist.get_rank()]).square().mean()
        %s.backward()
        sync(model)
        optimizer.step()
        print(mean_of(loss))


main(torch.ones(64, 8, 8))
"""


def _files(sync: str, *, optimizer: str = "SGD", rate: str = "0.1", loss: str = "loss") -> dict[str, str]:
    return {"train.py": _TRAIN % (optimizer, rate, loss), "sync.py": _SYNC % sync}


_ONE_FILE = """\
import torch
import torch.distributed as dist


class Worker:
    def __init__(self, net):
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        self.net = net
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)

    def reduce(self):
        for p in self.net.parameters():
            if p.requires_grad:
                dist.all_reduce(p.grad, op=dist.ReduceOp.%s)

    def step(self, x):
        self.optimizer.zero_grad()
        self.net(x).mean().backward()
        self.reduce()
        self.optimizer.step()


worker = Worker(torch.nn.Linear(4, 1))
for x in torch.ones(8, 2, 4):
    worker.step(x)
"""

EXAMPLES = (
    bad("each gradient", _files(_EACH % ("", "")), "sync.py:7 warning"),
    bad("one flat tensor", _files(_FLAT % ""), "sync.py:8"),
    bad("a method", {"worker.py": _ONE_FILE % "SUM"}, "worker.py:15"),
    good("divided at once", _files(_EACH % ("", "\n        parameter.grad.data /= dist.get_world_size()"))),
    good("divided as it is copied back", _files(_FLAT % " / dist.get_world_size()")),
    good("the loss is divided", _files(_EACH % ("", ""), loss="(loss / dist.get_world_size())")),
    good("the rate is divided", _files(_EACH % ("", ""), rate="0.1 / dist.get_world_size()")),
    good("the mean is asked for", {"worker.py": _ONE_FILE % "AVG"}),
    good("the size of a gradient does not count", _files(_EACH % ("", ""), optimizer="Adam")),
    good("one process", _files(_EACH % ("", "")), world_size=1),
)
