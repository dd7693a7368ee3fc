"""A collective works in a tensor of its own that nobody reads afterwards.

**What.** `dist.all_reduce(totals.to(device))`, `dist.all_reduce(loss / world_size)`, or the same of
`torch.tensor(hits)`: the argument is a new tensor. Or it has a name that nothing reads after the call, or a helper
returns it and its caller drops what it returns. The same holds for a list that is written where it is passed:
`dist.broadcast_object_list([folder])`.

**Why it hurts.** `all_reduce`, `reduce` and `broadcast` change the tensor that they get and return nothing. In a copy
the sum is lost: the variable still holds this rank's own numbers, and what is printed, compared or saved is that of
one rank. `tensor.to(device)` is a copy where the tensor lies elsewhere. Nothing fails.

**Fix.** Give the copy a name, reduce it, and continue with it: `totals = totals.to(device); dist.all_reduce(totals)`.

**When it stays quiet.** The argument is the tensor itself or a view of it (`x.data`, `x.view(-1)`); it may lie on the
device already; constants, which are a way to wait; what is read later, also by another function; what nobody continues
with; several things may be
meant.

**Evidence.** Two gloo ranks, torch 2.13: after `all_reduce(totals.double())` each rank holds its own numbers, after
`all_reduce(totals)` the sum.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.wrapping.copies import Copies, assigned, reads

META = RuleMeta(
    code="DSL619",
    name="reduced-copy-thrown-away",
    kind="script",
    severity=Severity.WARNING,
    summary="a collective changes a copy that nobody reads, and each rank continues with its own numbers",
    markers=(r"(?:reduce|broadcast)\w*\(", r"distributed|deepspeed|accelerat"),
    references=(
        "https://github.com/pytorch/pytorch/issues/102435",
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce",
    ),
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_FILLED = ("all_reduce", "reduce", "broadcast", "broadcast_object_list")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each collective whose filled argument is a copy, and the copy is gone after it."""
    if run.context.is_one_process:
        return
    copies = Copies(run)
    seen: set[int] = set()
    for found in run.occurrences("collective"):
        event = found.event
        if event.may or id(event.node) in seen or event.api.rpartition(".")[2] not in _FILLED:
            continue
        row = run.machine.libraries.function(event.api)
        given = next((event.nodes[name] for name in (row.makes_same if row else ()) if name in event.nodes), None)
        if given is None or not isinstance(event.node, ast.Call):
            continue
        place = _lost(copies, found, given)
        if place is not None:
            seen.add(id(event.node))
            yield _finding(run, event, given, *place)


def _lost(copies: Copies, found: Happening, given: ast.expr) -> tuple[Module, ast.AST] | None:
    """Return where a copy is dropped that a collective has filled: there, or where a helper is called."""
    event = found.event
    scope = _scope(event.module, event.node)
    if not isinstance(given, ast.Name):
        is_lost = _is_list(event, given) or copies.is_copy(event.module, given)
        return (event.module, event.node) if is_lost and _is_statement(event.module, event.node) else None
    values = assigned(scope, given.id)
    if not values or not isinstance(scope, _FUNCTIONS) or not all(copies.is_copy(event.module, v) for v in values):
        return None
    later = [node for node in reads(scope, given.id) if _is_after(node, event.node) or _is_in_loop(scope, event.node)]
    later = [node for node in later if node is not given and not any(node is n for v in values for n in ast.walk(v))]
    if not later:
        return (event.module, event.node) if _goes_on(scope, event.node, values) else None
    returns = [node for node in ast.walk(scope) if isinstance(node, ast.Return) and node.value is not None]
    is_returned = bool(returns) and all(any(node is n for r in returns for n in ast.walk(r)) for node in later)
    call = found.calls[-1] if is_returned and found.calls else None
    if call is not None and _scope(call.module, call.node) is not scope and _is_statement(call.module, call.node):
        return call.module, call.node
    return None


def _goes_on(scope: ast.AST, call: ast.AST, values: list[ast.expr]) -> bool:
    """Return whether what was copied is used later: there, or by the caller of a helper that returns nothing."""
    names = {node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)}
    if any(_is_after(node, call) for name in names for node in reads(scope, name)):
        return True
    arguments = getattr(scope, "args", None)
    given = {a.arg for a in arguments.args} if isinstance(arguments, ast.arguments) else set()
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(scope))
    return bool(names & given) and not returns


def _is_list(event: Event, given: ast.expr) -> bool:
    """Return whether a list of objects is written where it is passed, of more than constants."""
    return (
        "object-collective" in event.tags
        and isinstance(given, ast.List)
        and any(isinstance(node, ast.Name | ast.Attribute) for node in given.elts)
    )


def _scope(module: Module, node: ast.AST) -> ast.AST:
    """Return the innermost function around a node, or the module."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    around = [f for f in module.functions if f.lineno <= first and last <= (f.end_lineno or 0)]
    return around[-1] if around else module.tree


def _is_statement(module: Module, node: ast.AST) -> bool:
    return any(statement.value is node for statement in module.nodes_of(ast.Expr))


def _is_after(node: ast.AST, call: ast.AST) -> bool:
    return getattr(node, "lineno", 0) > getattr(call, "end_lineno", 0)


def _is_in_loop(scope: ast.AST, call: ast.AST) -> bool:
    """Return whether a loop is around a call: what stands before it may run after it."""
    loops = (node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While))
    return any(node is call for loop in loops for node in ast.walk(loop))


def _finding(run: RunQuery, event: Event, given: ast.expr, module: Module, place: ast.AST) -> Finding:
    name, copy = event.api.rpartition(".")[2], run.text(event.module, given, 40)
    where = f"`{name}` changes `{copy}`, a copy that nobody reads" if place is event.node else (
        f"`{run.text(module, place, 40)}` returns what `{name}` gives, and nobody uses it"
    )  # fmt: skip
    return run.finding(
        META,
        module,
        place,
        f"{where}: each rank continues with its own numbers",
        hint="Give the copy a name before the call, and continue with it",
        related=() if place is event.node else (run.location(event.module, event.node, "changes a copy"),),
        facts={"operation": name, "list": isinstance(given, ast.List)},
    )


_VALIDATE = """\
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, net, loader, device):
        self.net, self.loader, self.device = net, loader, device

    def validate(self):
        totals = torch.zeros(2, dtype=torch.float64)
        for x, y in self.loader:
            totals[0] += (self.net(x.to(self.device)).cpu() - y).pow(2).sum().item()
            totals[1] += len(x)
        %s
        return (totals[0] / totals[1]).item()


def main(net, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    print(Trainer(net, loader, torch.device("cuda")).validate())
"""
_LOGS = """\
import torch
import torch.distributed as dist


def reduced(tensor):
    copy = tensor.clone()
    dist.all_reduce(copy)
    copy /= dist.get_world_size()
    %s


def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        %s
        print(loss.item())


def main(model, loader, optimizer):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    train(model, loader, optimizer)
"""
_FOLDER = """\
import time

import torch.distributed as dist


def run_folder():
    folder = f"runs/{time.time()}"
    %s
    return folder


dist.init_process_group("gloo")
print(run_folder())
"""

EXAMPLES = (
    bad("sums on the host are moved for the call", {"train.py": _VALIDATE % "dist.all_reduce(totals.to(self.device))"},
        "train.py:14 warning"),
    bad("the copy has a name", {
        "train.py": _VALIDATE % "moved = totals.cuda()\n        dist.all_reduce(moved)"}, "train.py:15 warning"),
    bad("a mean", {"train.py": _LOGS % ("return copy", "dist.all_reduce(loss.detach() / dist.get_world_size())")},
        "train.py:17 warning"),
    bad("of a number", {"train.py": _LOGS % ("return copy", "dist.all_reduce(torch.tensor(loss.item()).cuda())")},
        "train.py:17 warning"),
    bad("a helper that returns nothing", {"train.py": _LOGS % ("print('reduced')", "reduced(loss)")},
        "train.py:7 warning"),
    bad("what the helper returns is dropped", {"train.py": _LOGS % ("return copy", "reduced(loss.detach())")},
        "train.py:17 warning"),
    bad("a list that is written in the call", {"train.py": _FOLDER % "dist.broadcast_object_list([folder], src=0)"},
        "train.py:8 warning"),
    good("the list has a name", {"train.py": _FOLDER % (
        "told = [folder]\n    dist.broadcast_object_list(told, src=0)\n    folder = told[0]")}),
    good("the copy takes the name", {
        "train.py": _VALIDATE % "totals = totals.to(self.device)\n        dist.all_reduce(totals)"}),
    good("it is there already", {"train.py": (_VALIDATE % "dist.all_reduce(totals.to(self.device))").replace(
        "dtype=torch.float64", "device=self.device")}),
    good("the tensor itself", {"train.py": _LOGS % ("return copy", "dist.all_reduce(loss.data)")}),
    good("what the helper returns is taken", {"train.py": _LOGS % ("return copy", "loss = reduced(loss.detach())")}),
    good("a way to wait", {"train.py": _LOGS % ("return copy", "dist.all_reduce(torch.ones(1).cuda())")}),
    good("a number that nobody continues with", {"train.py": _LOGS % (
        "return copy", "hits = (batch > 0).sum()\n        dist.all_reduce(hits)")}),
    good("copied back", {"train.py": _VALIDATE % (
        "moved = totals.cuda()\n        dist.all_reduce(moved)\n        totals.copy_(moved)")}),
)  # fmt: skip
