"""`training_step` of Lightning returns nothing on one rank, which then makes no backward pass.

**What.** `training_step` returns `None` where the batch of this rank is empty, its loss is not finite, or a caught
exception (out of memory) has struck it, and the trainer runs in several processes.

**Why it hurts.** Lightning leaves the backward pass out for a step that returns `None`. The other ranks have one and
wait in it for the gradients of this rank, until the process-group timeout; or its next backward pairs up with theirs,
and gradients of different steps are averaged. Lightning says so: "training_step returning None ... is not supported for
multi-GPU, TPU, or DeepSpeed".

**Fix.** Return a loss on every rank: `0 * self(batch).sum()`, or the loss with `torch.nan_to_num`. Or let the ranks
agree first (`self.all_gather`, `all_reduce` of a flag) and return `None` on all of them.

**When it stays quiet.** Manual optimisation (`automatic_optimization = False`); one device; what decides is the same on
all ranks, or was gathered; the handler raises again.

**Evidence.** Documentation of `LightningModule.training_step` (lightning 2.6). What the other ranks do is that of
DSL204 and DSL205, each of which has an experiment on two ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Exit, Node, Seq, Try, children
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Function
from dslint.python.varies import CLOCK, DATA, LOST, MISSING, RANDOM, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import has_several, is_one_process, trainers

META = RuleMeta(
    code="DSL611",
    name="training-step-returns-nothing",
    kind="script",
    severity=Severity.WARNING,
    summary="`training_step` of Lightning returns None on one rank, and the others wait for it in their backward",
    markers=(r"lightning", r"def training_step"),
    references=("https://lightning.ai/docs/pytorch/stable/common/lightning_module.html#training-step",),
    depends_on_run=True,
    no_experiment="DSL204 and DSL205 show on two ranks what a rank without a backward pass does",
)
_OWN = DATA | CLOCK | RANDOM | RANKED
_MOST = 12  # tests around a `return`


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each `return` without a loss that a rank comes to by itself."""
    made = trainers(run)
    if is_one_process(run) or not made or not all(map(has_several, made)):
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        for call in _steps(tree):
            if id(call.function) not in seen:
                seen.add(id(call.function))
                yield from _told(run, call)


def _steps(tree: Node) -> Iterator[Call]:
    """Yield the calls of the training steps that Lightning optimises after."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Call) and isinstance(node.function, Function) and node.function.name == "training_step":
            owner = node.function.owner
            if isinstance(owner, ClassAtom) and "automatic_optimization" not in owner.module.text(owner.node):
                yield node
            continue
        pending.extend(children(node))


def _told(run: RunQuery, call: Call) -> Iterator[Finding]:
    for left, around, module in _empty_returns(call, ()):
        cause = next((found for node in reversed(around) if (found := _cause(node)) is not None), None)
        if cause is None:
            continue
        place, why, decides = cause
        yield run.finding(
            META,
            module,
            left.node,
            f"`training_step` returns nothing {why}: this rank skips backward, and the others hang in theirs",
            hint="Return a loss on every rank (`0 * loss` keeps the graph), or let the ranks agree before one leaves",
            related=(run.location(decides or module, place, "decides on this rank alone"),),
        )


def _empty_returns(call: Call, around: tuple[Node, ...]) -> Iterator[tuple[Exit, tuple[Node, ...], Module]]:
    """Yield the `return`s without a value, with the tests and handlers around them, those of a helper included."""
    if not isinstance(call.function, Function):
        return
    for left, tests in _returns(call.body, around):
        assert isinstance(left.node, ast.Return)
        if _is_none(left.node.value):
            yield left, tests, call.function.module
        helper = _helper(call, left.node.value)
        if helper is not None and len(tests) < _MOST:
            yield from _empty_returns(helper, tests)


def _returns(block: Seq, around: tuple[Node, ...]) -> Iterator[tuple[Exit, tuple[Node, ...]]]:
    """Yield the `return`s of a function, with the tests and handlers around them."""
    for node in block.items:
        if isinstance(node, Exit) and isinstance(node.node, ast.Return):
            yield node, around
        elif isinstance(node, Call):
            continue
        elif isinstance(node, Try):
            for number, handler in enumerate(node.handlers):
                caught = getattr(node.node, "handlers", [])[number : number + 1]
                yield from _returns(handler, (*around, *(_Caught(part) for part in caught)))  # type: ignore[arg-type]
            for part in (node.body, node.orelse, node.final):
                yield from _returns(part, around)
        else:
            for child in children(node):
                if isinstance(child, Seq):
                    yield from _returns(child, (*around, node))


def _helper(call: Call, returned: ast.expr | None) -> Call | None:
    """Return the call of the project whose result a function returns, at once or by a variable that is set once."""
    if isinstance(returned, ast.Name) and isinstance(call.function, Function):
        inside = [n for n in ast.walk(call.function.node) if isinstance(n, ast.Assign | ast.AugAssign | ast.AnnAssign)]
        names = [
            (node, {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)})
            for node in inside
        ]
        given = [node.value for node, stored in names if returned.id in stored]
        is_plain = len(given) == 1 and all(len(stored) == 1 for _, stored in names if returned.id in stored)
        returned = given[0] if is_plain else None
    pending = [call.body] if isinstance(returned, ast.Call) else []
    while pending:
        for node in (node for child in [pending.pop()] for node in child.items):
            if isinstance(node, Call):
                if node.node is returned:
                    return node
            else:
                pending += [child for child in children(node) if isinstance(child, Seq)]
    return None


class _Caught:
    """A handler around a `return`."""

    def __init__(self, handler: ast.ExceptHandler) -> None:
        self.handler = handler


def _cause(node: Node | _Caught) -> tuple[ast.AST, str, Module | None] | None:
    """Return what lets a rank come to a place alone, when that is, and the module where it is decided."""
    if isinstance(node, _Caught):
        return node.handler.type or node.handler, "after this rank's own exception", None
    if not isinstance(node, Alt) or not node.varies & _OWN or node.varies & (LOST | MISSING):
        return None
    test = getattr(node.node, "test", node.node)
    return test, "for some batches of this rank", node.module


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


_MODEL = """\
import torch
import lightning as L


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
%s
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
_NAN = """\
        loss = self.layer(batch).mean()
        if torch.isnan(loss):
            return None"""
_OOM = """\
        try:
            loss = self.layer(batch).mean()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            return"""
_AGREED = """\
        loss = self.layer(batch).mean()
        if self.all_gather(torch.isnan(loss)).any():
            return None"""
_SHARED = """\
        loss = self.shared_step(batch)
        self.log("loss", loss)
        return loss

    def shared_step(self, batch):
        loss = self.layer(batch).mean()
        if not torch.isfinite(loss):
            return None"""
_KEPT = """\
        loss = self.layer(batch).mean()
        if torch.isnan(loss):
            loss = torch.nan_to_num(loss)"""
_START = """\
import lightning as L
from torch.utils.data import DataLoader

from model import Model


def main(data):
    trainer = L.Trainer(%s, max_epochs=2)
    trainer.fit(Model(), DataLoader(data, batch_size=8))
"""
_DDP = 'devices=4, strategy="ddp"'


def _files(step: str, trainer: str = _DDP) -> dict[str, str]:
    return {"model.py": _MODEL % step, "train.py": _START % trainer}


EXAMPLES = (
    bad("A loss that is not a number is skipped", _files(_NAN), "model.py:13"),
    bad("A batch that is too large is skipped", _files(_OOM), "model.py:15"),
    bad("What a helper returns", _files(_SHARED), "model.py:18"),
    good("The ranks agree to skip", _files(_AGREED)),
    good("Every rank returns a loss", _files(_KEPT)),
    good("One device", _files(_NAN, "devices=1")),
)
