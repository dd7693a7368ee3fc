"""A rank that skips its batch runs backward on a tensor that no parameter took part in.

**What.** `loss = torch.tensor(0.0, requires_grad=True)` (or `torch.zeros(...)`, with `requires_grad_()`) takes the
place of the loss where each rank's own batch says so: an outlier, a NaN, no boxes, no labels. It is what `backward`
gets, or what `compute_loss` of a Trainer, `training_step` or the `forward` of the wrapped model returns.

**Why it hurts.** `requires_grad=True` only keeps `backward` from raising. No hook of the model fires on this rank: DDP
starts no reduction, FSDP and ZeRO gather no weights and scatter no gradients. The other ranks wait in these
collectives until the process-group timeout, or take the next ones of this rank for them.

**Fix.** Keep the graph: `loss = loss * 0.0`, or `outputs.sum() * 0.0` of all outputs. A NaN times zero is NaN: there
use `torch.nan_to_num(outputs).sum() * 0.0`, or let all ranks decide together whether they skip.

**When it stays quiet.** The test is the same on all ranks (a flag that was reduced); the tensor is added to a loss of
the model; it is never the loss; nothing wraps the model for several ranks.

**Evidence.** Two gloo ranks, torch 2.13, DeepSpeed 0.19: with DDP and at ZeRO stage 3 the ranks that continue wait for
the one that skips until the timeout; with the loss times zero all continue.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Alt, Call, Event
from dslint.python.queries.waits import has_word
from dslint.python.source import Module
from dslint.python.values import Function, Instance, Value
from dslint.python.varies import ASSUMED, DATA, LOST
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import arms_of
from dslint.rules.zero.enginenames import function_of

META = RuleMeta(
    code="DSL664",
    name="loss-without-graph",
    kind="script",
    severity=Severity.ERROR,
    summary="a rank that skips its batch runs backward on a tensor that no parameter took part in: the others wait",
    markers=(r"requires_grad", r"backward|compute_loss|training_step", r"torch\."),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/7495",
        "https://github.com/pytorch/pytorch/issues/22436",
    ),
    depends_on_run=True,
)
_MAKES = "makes-leaf-if requires_grad=True"
_BACKWARD = ("backward", "engine-backward")
# What a library takes the loss from, by the class that overrides it.
_HOOKS = {"compute_loss": "transformers.Trainer", "training_step": "lightning.LightningModule"}
_WRAPS = ("wraps-model", "prepares", "makes-engine", "trainer-train")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each leaf that is the loss of the ranks whose own data say so."""
    if run.context.is_one_process or not run.has(*_WRAPS):
        return
    named = [found.event for found in run.occurrences(*_BACKWARD)]
    losses = {id(atom.node) for event in named for value in _given(event) for atom in instances(value)}
    for found in _leaves(run):
        event = found.event
        test = _own_test(found)
        if test is None or event.may:
            continue
        if _is_loss(run, found, named, losses):
            yield _finding(run, event, test)


def _leaves(run: RunQuery) -> Iterator[Happening]:
    """Yield the calls that make a tensor of nothing and give it a gradient."""
    for found in run.happenings(_MAKES, "freezes"):
        event = found.event
        if has_word(event, "makes-leaf-if") or ("freezes" in event.tags and _is_new(event)):
            yield found


def _is_new(event: Event) -> bool:
    """`torch.zeros(1).requires_grad_()`: the tensor is made in the same expression."""
    call = (
        event.node.func.value
        if isinstance(event.node, ast.Call) and isinstance(event.node.func, ast.Attribute)
        else None
    )
    flags = [value for name, value in event.arguments.items() if name in ("mode", "requires_grad")]
    is_on = all(value.constants == (True,) for value in flags)
    made = event.receiver.single if event.receiver is not None else None
    is_tensor = isinstance(made, Instance) and made.cls == "torch.Tensor"
    arguments = call.args if isinstance(call, ast.Call) else ()
    return is_on and is_tensor and isinstance(call, ast.Call) and all(isinstance(a, ast.Constant) for a in arguments)


def _given(event: Event) -> Iterator[Value]:
    yield from (v for v in (event.receiver, event.arguments.get("loss")) if v is not None)


def _own_test(found: Happening) -> Alt | None:
    """Return the test of each rank's own data by which the others do something else, or have left before."""
    for node in reversed(found.around):
        if isinstance(node, Alt) and _is_own(node) and node.then_lanes & node.else_lanes:
            return node
        if isinstance(node, Call) and isinstance(node.function, Function) and node.function.name in _HOOKS:
            break
    if not found.event.varies & DATA or found.event.varies & LOST:
        return None
    return next((arm.alt for arm in reversed(arms_of(found)) if _is_own(arm.alt)), None)


def _is_own(alt: Alt) -> bool:
    return bool(alt.varies & DATA) and not alt.varies & LOST


def _is_loss(run: RunQuery, found: Happening, named: list[Event], losses: set[int]) -> bool:
    """Return whether the leaf, or what functions return that return it, is a loss."""
    node: ast.AST = found.event.node
    module = found.event.module
    for call in reversed(found.calls):
        function = call.function
        if id(node) in losses or any(_is_scaled(module, node, one) for one in named):
            return True
        if not isinstance(function, Function) or not _returns(function.node, node):
            return False
        wanted = _HOOKS.get(function.name)
        if (
            wanted is not None
            and function.owner is not None
            and attributes.is_instance_of(run.machine, function.owner, wanted)
        ):
            return True
        module, node = call.module, call.node
    return id(node) in losses or any(_is_scaled(module, node, one) for one in named)


def _returns(function: ast.AST, leaf: ast.AST) -> bool:
    """Return whether a function returns the leaf, alone or as the first of several."""
    names = _names(leaf, function)
    returns = (node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None)
    parts = {part for value in returns for part in _first(value)}
    return any(part is leaf or (isinstance(part, ast.Name) and part.id in names) for part in parts)


def _first(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.IfExp):
        yield from (*_first(value.body), *_first(value.orelse))
    elif isinstance(value, ast.Tuple):
        yield from _first(value.elts[0]) if value.elts else ()
    elif isinstance(value, ast.Dict):
        yield from (
            v
            for k, v in zip(value.keys, value.values, strict=True)
            if isinstance(k, ast.Constant) and k.value == "loss"
        )
    else:
        yield value


def _names(leaf: ast.AST, scope: ast.AST) -> set[str]:
    """Return the variables that hold the leaf, and that nothing is added to afterwards."""
    line = getattr(leaf, "lineno", 0)
    found: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and _holds(node.value, leaf):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AugAssign) and node.lineno > line and _adds(node):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.difference_update(target.id for target in targets if isinstance(target, ast.Name))
    return found


def _adds(node: ast.Assign | ast.AugAssign) -> bool:
    operator = node.op if isinstance(node, ast.AugAssign) else getattr(node.value, "op", None)
    return isinstance(operator, ast.Add)


def _holds(value: ast.expr, leaf: ast.AST) -> bool:
    sides = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
    return any(side is leaf for side in sides)


def _is_scaled(module: Module, leaf: ast.AST, backward: Event) -> bool:
    """`(loss / steps).backward()`: the loss of the same function, times a number."""
    call = backward.node if isinstance(backward.node, ast.Call) else None
    if call is None or module is not backward.module:
        return False
    given = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
    while isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mult | ast.Div):
        given = given.left if isinstance(given.left, ast.Name | ast.BinOp) else given.right
    scope = function_of(module, leaf)
    if not isinstance(given, ast.Name) or function_of(backward.module, backward.node) is not scope:
        return False
    return given.id in _names(leaf, scope)


def _finding(run: RunQuery, event: Event, test: Alt) -> Finding:
    asked = getattr(test.node, "test", test.node)
    return run.finding(
        META,
        event.module,
        event.node,
        "A rank that comes here runs backward on a tensor without a graph: no hook fires, and the other ranks hang",
        hint="Keep the graph: `loss * 0.0`, or the sum of all outputs times zero",
        related=(run.location(test.module, asked, "each rank's own data decide"),),
        varies=test.varies & ~ASSUMED | event.varies & ASSUMED,
        facts={"call": event.api.rpartition(".")[2]},
    )


_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from net import Net


def agreed(flag):
    every = torch.tensor(float(flag))
    dist.all_reduce(every)
    return every.item() > 0


def main(data):
    dist.init_process_group("gloo")
    model = DDP(Net())
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(data, 8, sampler=DistributedSampler(data))
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for x, boxes in loader:
            loss = model(x, boxes)
%s
            optimizer.step()
            optimizer.zero_grad()


main(torch.load("data.pt"))
"""
_NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x, boxes):
        out = self.layer(x)
%s
        return (out[boxes] - 1).square().mean()
"""
_TRAINER = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Robust(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = outputs.loss
        if %s:
            loss = %s
        return (loss, outputs) if return_outputs else loss


def main(dataset):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Robust(model=model, args=TrainingArguments("out"), train_dataset=dataset).train()


main(None)
"""
_PLAIN = "            loss.backward()"


def _script(*lines: str) -> dict[str, str]:
    return {"train.py": _TRAIN % "\n".join(lines), "net.py": _NET % "        pass"}


def _net(*lines: str) -> dict[str, str]:
    return {"train.py": _TRAIN % _PLAIN, "net.py": _NET % "\n".join(lines)}


_NAN, _LEAF = "            if torch.isnan(loss):", "                loss = torch.zeros((), requires_grad=True)"
_EMPTY = "        if boxes.numel() == 0:"
_SPIKE, _ZERO = "loss.item() > 10", "torch.tensor(0.0, device=loss.device, requires_grad=True)"
EXAMPLES = (
    bad("a NaN is replaced", _script(_NAN, _LEAF, _PLAIN), "train.py:25 error"),
    bad("and divided", _script(_NAN, _LEAF, "            (loss / 4).backward()"), "train.py:25 error"),
    bad("the model returns it", _net(_EMPTY, "            return torch.zeros(1).requires_grad_()"), "net.py:13 error"),
    bad("a Trainer", {"train.py": _TRAINER % (_SPIKE, _ZERO)}, "train.py:10 error"),
    good("the loss times zero", {"train.py": _TRAINER % (_SPIKE, "loss * 0.0")}),
    good("what all ranks do in the same step", {"train.py": _TRAINER % ("self.state.global_step < 10", _ZERO)}),
    good("outputs times zero", _net(_EMPTY, "            return out.sum() * 0.0")),
    good("all ranks skip", _script("            if agreed(torch.isnan(loss)):", _LEAF, _PLAIN)),
    good(
        "a part of the loss",
        _script("            extra = torch.zeros((), requires_grad=True)", "            if boxes.numel() > 0:",
                "                extra = boxes.float().mean()", "            (loss + extra).backward()"),
    ),
)  # fmt: skip
