"""`require_backward_grad_sync` of DDP is set when the forward pass has decided already, or is never true again.

**What.** A loop that accumulates gradients by hand writes `model.require_backward_grad_sync = is_last` between
`loss = model(x)` and `loss.backward()`; or the only value that the program ever gives it is `False`.

**Why it hurts.** `DistributedDataParallel` reads the flag in its forward pass. Set after it, the value holds for the
next micro batch: the first one of the next group is exchanged in the place of the last one of this group, and the
optimizer steps with what each rank has added up by itself. Nothing fails; the replicas drift apart, and the checkpoint
is that of rank 0.

**Fix.** Set it before the forward pass, or enter `model.no_sync()` around forward and backward pass.

**When it stays quiet.** The flag is set before a forward pass of the same loop, too; a model that may be no DDP; one
process.

**Evidence.** Two gloo ranks, torch 2.13: after two groups of four micro batches the weights of the ranks differ; with
the flag before the forward pass they are equal. `DistributedDataParallel._pre_forward` and `_post_forward`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL689",
    name="sync-flag-after-forward",
    kind="script",
    severity=Severity.WARNING,
    summary="`require_backward_grad_sync` comes after the forward pass, which decides, or is never true again",
    markers=(r"require_backward_grad_sync",),
    references=(
        "DistributedDataParallel._post_forward in torch/nn/parallel/distributed.py",
        "https://github.com/karpathy/nanoGPT/blob/master/train.py",
    ),
    depends_on_run=True,
)
_FLAG = "require_backward_grad_sync"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the one place that sets the flag, where that is too late, or on the first where none sets it to true."""
    if run.context.is_one_process:
        return
    forwards = [found.event for found in run.happenings("ddp-forward")]
    backwards = [found.event for found in run.happenings("backward")]
    if not forwards or not backwards:
        return
    places = [(module, node) for module in run.machine.program.modules() for node in _settings(module)]
    if places and all(_is_off(node) for _, node in places):
        yield _finding(run, places[0], forwards[0], "is never true again: no gradient is averaged over the ranks")
        return
    if len(places) != 1:
        return
    module, node = places[0]
    scope = _loop(module, node)
    mine = [event for event in forwards if _is_inside(event, module, scope)]
    before = [event for event in mine if _line(event.node) < node.lineno]
    after = [event for event in mine if _line(event.node) > node.lineno]
    ends = [e for e in backwards if _is_inside(e, module, scope) and _line(e.node) > node.lineno]
    if len(before) == 1 and ends and not after:
        text = "is set after the forward pass, which reads it: the last micro batch of a step is not exchanged"
        yield _finding(run, (module, node), before[0], text)


def _settings(module: Module) -> Iterator[ast.Assign]:
    """Yield the statements that set the flag of some object."""
    for node in module.nodes_of(ast.Assign):
        if any(isinstance(target, ast.Attribute) and target.attr == _FLAG for target in node.targets):
            yield node


def _is_off(node: ast.Assign) -> bool:
    return isinstance(node.value, ast.Constant) and node.value.value is False


def _loop(module: Module, node: ast.AST) -> ast.AST | None:
    """Return the innermost loop or function around a statement."""
    above = module.parents.get(node)
    while above is not None and not isinstance(above, ast.For | ast.While | ast.FunctionDef):
        above = module.parents.get(above)
    return above


def _is_inside(event: Event, module: Module, scope: ast.AST | None) -> bool:
    first, last = (scope.lineno, scope.end_lineno or 0) if isinstance(scope, ast.stmt) else (0, 0)
    return event.module is module and first <= _line(event.node) <= last


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _finding(run: RunQuery, place: tuple[Module, ast.Assign], forward: Event, what: str) -> Finding:
    return run.finding(
        META,
        *place,
        f"`{_FLAG}` {what}",
        hint="Set it before the forward pass, or use `model.no_sync()`",
        related=(run.location(forward.module, forward.node, "the forward pass"),),
        facts={"gas": 4},
    )


_SCRIPT = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(steps, accumulation):
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    model = DDP(torch.nn.Linear(8, 1).cuda(), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        for micro in range(accumulation):
            x = torch.randn(4, 8, device=device)
%s
        optimizer.step()
        optimizer.zero_grad()


main(100, 4)
"""
_EARLY = """\
            model.require_backward_grad_sync = micro == accumulation - 1
            loss = model(x).square().mean() / accumulation
            loss.backward()"""
_LATE = """\
            loss = model(x).square().mean() / accumulation
            model.require_backward_grad_sync = micro == accumulation - 1
            loss.backward()"""
_NEVER = """\
            model.require_backward_grad_sync = False
            loss = model(x).square().mean() / accumulation
            loss.backward()"""
_HELPER = """\
            micro_step(model, x, micro == accumulation - 1, accumulation)"""
_STEP = """\
def micro_step(model, x, is_last, accumulation):
    loss = model(x).square().mean() / accumulation
    model.require_backward_grad_sync = is_last
    loss.backward()
"""
_BOTH = """\
            model.require_backward_grad_sync = False
            if micro == accumulation - 1:
                model.require_backward_grad_sync = True
            loss = model(x).square().mean() / accumulation
            loss.backward()"""

EXAMPLES = (
    bad("between forward and backward pass", {"train.py": _SCRIPT % _LATE}, at="train.py:18 warning"),
    bad("switched off for good", {"train.py": _SCRIPT % _NEVER}, at="train.py:17"),
    bad(
        "in a helper of another file",
        {"train.py": "from steps import micro_step\n" + _SCRIPT % _HELPER, "steps.py": _STEP},
        at="steps.py:3",
    ),
    good("before the forward pass", {"train.py": _SCRIPT % _EARLY}),
    good("off, and on for the last", {"train.py": _SCRIPT % _BOTH}),
    good("one process", {"train.py": _SCRIPT % _LATE}, world_size=1),
)
