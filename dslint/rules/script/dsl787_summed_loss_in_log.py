"""A loss is summed over the ranks for the log, and nothing divides the sum.

**What.** A helper such as `reduce_tensor(loss)`, or the loop itself, adds the losses of all ranks (`dist.all_reduce`
adds where no operation is named), and the sum is printed or written as the loss.

**Why it hurts.** The curve is as many times too high as there are ranks: runs on two and on eight GPUs cannot be
compared, a threshold or an early stop by the number is wrong, and more GPUs look like a divergence.

**Fix.** Divide by the number of processes, `loss / dist.get_world_size()`, or ask for the mean (`op=dist.ReduceOp.AVG`,
NCCL only).

**When it stays quiet.** Where the helper divides or multiplies anything; where the function that calls it divides what
it gets, or anything by the number of processes; with other operations, and in groups of their own; for a loss that a
backward pass needs; where nothing is written.

**Evidence.** Two ranks with the losses 1 and 3: the number after the call is 4, and the mean is 2.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import all_come
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.schedules import knows_world
from dslint.rules.wrapping.ddps import is_of_all, is_sum

META = RuleMeta(
    code="DSL787",
    name="summed-loss-in-log",
    kind="script",
    severity=Severity.WARNING,
    summary="a loss is summed over the ranks for the log, and nothing divides the sum",
    markers=(r"\ball_reduce|\breduce\(", r"loss", r"print|log|writer|wandb|meter"),
    references=(
        "https://github.com/HRNet/HRNet-Semantic-Segmentation/issues/34",
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce",
    ),
    depends_on_run=True,
)
_LOSS = re.compile(r"(?:^|[^a-z])loss(?!_?(?:sum|total)|es_sum)|_loss\b")
_TOTAL = re.compile(r"sum|total|running|accum|epoch")
_WRITES = re.compile(r"\bprint\(|\blog\w*[.(]|writer\.|wandb\.|meter|add_scalar")
_SCALES = re.compile(r"^(?:div|mul|true_divide|divide)_?$")
_SAME_NUMBER = frozenset({"detach", "clone", "item", "float", "double", "mean", "cpu", "cuda", "to"})
_TRAINS = ("backward", "engine-backward")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each sum of losses that is written as it is."""
    if run.context.is_one_process or not run.has(*_TRAINS):
        return
    told: set[ast.AST] = set()
    for found in run.happenings("collective"):
        event = found.event
        if event.node in told or not _adds(run, found):
            continue
        place = _loss(found)
        if place is not None and not _is_divided(run, found, *place):
            told.add(event.node)
            yield _finding(run, event, *place)


def _adds(run: RunQuery, found: Happening) -> bool:
    event = found.event
    is_whole = all_come(run, found) and not event.open
    is_reduction = event.api.rpartition(".")[2] in ("all_reduce", "reduce") and event.api.startswith("torch.")
    return is_whole and is_reduction and is_sum(event) and is_of_all(event)


def _loss(found: Happening) -> tuple[Module, ast.AST] | None:
    """Return where a loss goes into the sum: the call of the helper that adds, else the collective."""
    event = found.event
    if found.calls and _names_loss(found.calls[-1].node):
        return found.calls[-1].module, found.calls[-1].node
    return (event.module, event.node) if _names_loss(event.node) else None


def _names_loss(call: ast.AST) -> bool:
    """Return whether a call gets a single loss by its name, and no total of a whole epoch, nor a test of it."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(call, ast.Call) else []
    alone = [node for node in given if not isinstance(node, ast.Constant)]
    word = _root(given[0]) if given and (len(alone) == 1 or _is_collective(call)) else ""
    return bool(_LOSS.search(word)) and not _TOTAL.search(word)


def _is_collective(call: ast.AST) -> bool:
    name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    return name.rpartition(".")[2] in ("all_reduce", "reduce")


def _root(node: ast.expr) -> str:
    """Return the name behind methods that give the same number: `loss` of `loss.detach().clone()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_NUMBER:
        node = node.func.value
    if isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else ""


def _is_divided(run: RunQuery, found: Happening, module: Module, node: ast.AST) -> bool:
    """Return whether something divides the sum, or may; or nothing writes it."""
    event = found.event
    helper = run.derived.scopes(event.module, event.node)[0]
    scope = run.derived.scopes(module, node)[0]
    if helper is not scope and any(_is_quotient(n) for n in ast.walk(helper)):
        return True
    names = _names(module, node, event)
    for inner in ast.walk(scope):
        if _is_quotient(inner) and (knows_world(inner) or names & _read(inner) or node in ast.walk(inner)):
            return True
        if isinstance(inner, ast.Attribute) and inner.attr == "backward" and names & _read(inner.value):
            return True
    return _WRITES.search(module.text(scope)) is None


def _names(module: Module, node: ast.AST, event: Event) -> set[str]:
    """Return the variables that hold the sum."""
    parent = module.parents.get(node)
    while isinstance(parent, ast.expr):
        parent = module.parents.get(parent)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    found = {ast.unparse(target) for target in targets}
    tensor = event.nodes.get("tensor")
    return found | ({ast.unparse(tensor)} if node is event.node and tensor is not None else set())


def _read(node: ast.AST) -> set[str]:
    return {ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}


def _is_quotient(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.Div | ast.Mult)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and bool(_SCALES.match(node.func.attr))


def _finding(run: RunQuery, event: Event, module: Module, node: ast.AST) -> Finding:
    related = (run.location(module, node, "a loss of this rank"),) if node is not event.node else ()
    return run.finding(
        META,
        event.module,
        event.node,
        "the losses of all ranks are added for the log, and nothing divides the sum: it grows with the number of GPUs",
        hint="Divide by the number of processes: `loss / dist.get_world_size()`",
        related=related,
    )


_HELPER = """\
import torch
import torch.distributed as dist


def reduce_tensor(value):
    if dist.get_world_size() < 2:
        return value
    with torch.no_grad():
        told = value.clone()
        dist.all_reduce(told%s)
    return told%s
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from tools import reduce_tensor


def main(loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    model = DDP(torch.nn.Linear(8, 1).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        loss = model(x.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        %s
        if dist.get_rank() == 0:
            print("loss", mean)


main(make_loader())
"""
_MEAN = "mean = reduce_tensor(loss.detach()).item()"


def _files(line: str, *, op: str = "", after: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % line, "tools.py": _HELPER % (op, after)}


EXAMPLES = (
    bad("a helper that adds", _files(_MEAN), "tools.py:10 warning"),
    bad("the operation is named", _files(_MEAN, op=", op=dist.ReduceOp.SUM"), "tools.py:10"),
    bad("in the loop", _files("mean = log_loss = loss.detach().clone()\n        dist.all_reduce(log_loss)"),
        "train.py:19"),
    good("the helper divides", _files(_MEAN, after=" / dist.get_world_size()")),
    good("the mean is asked for", _files(_MEAN, op=", op=dist.ReduceOp.AVG")),
    good("the caller divides", _files(_MEAN + " / dist.get_world_size()")),
    good("divided a line later", _files(
        "log_loss = loss.detach().clone()\n        dist.all_reduce(log_loss)\n        mean = log_loss / 4")),
    good("a number of samples", _files("mean = reduce_tensor(torch.tensor(len(x)).cuda())")),
    good("a total that a count divides", _files(
        "total_loss = reduce_tensor(loss.detach() * len(x))\n        mean = total_loss / reduce_tensor(x)")),
    good("one process", _files(_MEAN), world_size=1),
)  # fmt: skip
