"""The optimizer steps twice on the same gradients: no backward and no `zero_grad` is between the two steps.

**What.** In one turn of the loop `optimizer.step()` runs, and runs again without a new backward: after clipping,
after `scaler.step(optimizer)`, or in a helper that steps, too.

**Why it hurts.** The second step repeats the first with the same gradients: the learning rate is in effect doubled,
Adam counts each gradient twice, and a warm-up or a decay by steps of the optimizer runs at double speed. Where the
clipping is between the two, the first step has already used the gradients as they were. Nothing raises.

**Fix.** Remove one of the two steps, the one before the clipping.

**When it stays quiet.** A backward, `zero_grad` or anything that may write gradients between the two; steps of
different optimizers; two sides of one test; a first step that may be left out; steps with a closure (LBFGS, SAM),
which run the backward themselves; engines of DeepSpeed.

**Evidence.** Two gloo ranks, torch 2.13: after one backward with clipping to 0.1, the weights have moved as far as an
unclipped and a clipped step together. `torch.optim.Optimizer.step` leaves `grad` as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event, Loop
from dslint.python.queries.order import before
from dslint.python.source import Module
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL741",
    name="stepped-twice-on-one-backward",
    kind="script",
    severity=Severity.WARNING,
    summary="the optimizer steps twice for one backward: the same gradients are applied again",
    markers=(r"step\(",),
    references=("https://pytorch.org/docs/stable/optim.html#taking-an-optimization-step",),
    depends_on_run=True,
)
_STEPS = ("optimizer-step", "named-step")
_RENEWS = frozenset({"backward", "engine-backward", "zero-grad", "engine-step"})
# What may write gradients or weights although nobody knows the call.
_MAY_RENEW = re.compile(
    r"backward|zero_|\.grad\b|autograd|train|perturb|first_step|second_step|closure|load_state|param_groups|copy_"
    r"|(?<!scaler\.)(?<!step_)update\w*\("
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each step that certainly follows another one of the same optimizer in the same turn."""
    asked = [(found, _stepped(found.event)) for found in run.occurrences(*_STEPS)]
    steps = [(step, optimizer) for step, optimizer in asked if optimizer is not None]
    of_one: dict[Hashable, dict[int, Happening]] = {}
    for step, optimizer in steps:
        of_one.setdefault(optimizer, {})[id(step.event)] = step
    seen: set[int] = set()
    for step, optimizer in steps:
        earlier = of_one[optimizer]
        if (len(earlier) == 1 and not step.calls) or id(step.event.node) in seen:
            continue
        pair = next((pair for pair in _pairs(step, earlier) if not _may_renew(*pair)), None)
        if pair is not None:
            seen.add(id(step.event.node))
            yield _finding(run, *pair)


def _stepped(event: Event) -> Hashable:
    """Return the optimizer that certainly steps, with the gradients that it finds; an unknown one by its name."""
    if event.may or "engine-step" in event.tags or event.open:
        return None
    function = event.node.func if isinstance(event.node, ast.Call) else None
    if "optimizer-step" not in event.tags and isinstance(function, ast.Attribute):
        arguments = event.node.args if isinstance(event.node, ast.Call) else []
        is_scaler = len(arguments) == 1 and last_name(function.value).endswith("scaler")
        owner = arguments[0] if is_scaler else function.value
        is_plain = isinstance(owner, ast.Name | ast.Attribute) and (is_scaler or not arguments)
        around = function_around(event.module, event.node)
        return (around, event.module.text(owner)) if is_plain and around is not None else None
    closure = event.arguments.get("closure")
    if closure is not None and closure.constants != (None,):
        return None
    value = event.arguments.get("optimizer") if "scaler-step" in event.tags else event.receiver
    atom = value.single if value is not None else None
    return atom if isinstance(atom, Instance) and not atom.loop else None


def _pairs(step: Happening, earlier: dict[int, Happening]) -> Iterator[tuple[Happening, Happening]]:
    """Yield the steps that have certainly been made before in the turn, and since then nothing renews gradients.

    Several calls may lead to one step: then it may come after itself.
    """
    at = next((at for at, node in reversed(list(enumerate(step.around))) if isinstance(node, Loop)), None)
    loop = step.around[at] if at is not None else None
    if at is None or not isinstance(loop, Loop):
        return
    for way in before(loop.body, step.event, lambda e: id(e) in earlier, lambda e: bool(e.tags & _RENEWS)):
        if way.done:
            around = (*step.around[: at + 1], *way.way[1:-1])
            yield earlier[id(way.done[-1])], replace(step, around=around)


def _may_renew(first: Happening, second: Happening) -> bool:
    """Return whether the code between two steps may write gradients; it must be in one function."""
    one, other = _place(first, second), _place(second, first)
    if one[0] is not other[0] or function_around(*one) is not function_around(*other):
        return True
    module = one[0]
    start, end = module.span(one[1]).end, module.span(other[1]).start
    return start > end or _MAY_RENEW.search(_code(module, start, end)) is not None


def _code(module: Module, start: int, end: int) -> str:
    """Return the code between two places without its comments, and without the clipping."""
    lines = (line.partition("#")[0] for line in module.source.text[start:end].splitlines())
    return re.sub(r"clip_grad\w*", "", "\n".join(lines))


def _place(found: Happening, other: Happening) -> tuple[Module, ast.AST]:
    """Return where a step happens in the function that holds both: the call that leads to it, or the step."""
    shared = {id(node) for node in other.around}
    call = next((node for node in found.around if isinstance(node, Call) and id(node) not in shared), None)
    return (call.module, call.node) if call is not None else (found.event.module, found.event.node)


def _finding(run: RunQuery, first: Happening, second: Happening) -> Finding:
    (module, start), (_, end) = _place(first, second), _place(second, first)
    text = module.source.text[module.span(start).end : module.span(end).start]
    is_clipped = re.search(r"clip_grad", text) is not None
    what = ": the first one before they are clipped" if is_clipped else ""
    return run.finding(
        META,
        module,
        end,
        f"the optimizer steps a second time on the gradients of one backward{what}",
        hint="Remove one of the two steps" + (", the one before the clipping" if is_clipped else ""),
        related=(run.location(module, start, "the first step of the same turn"),),
        facts={"clipped": is_clipped},
    )


_TRAIN = """\
import torch
import torch.distributed as dist


def update(optimizer):
    optimizer.step()


def train(model, loader, clip=True):
    dist.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    other = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    for turn, x in enumerate(loader):
        loss = model(x).mean()
%s
        optimizer.zero_grad()


train(torch.nn.Linear(4, 1), torch.load("loader.pt"))
"""
_CLIPPED = """\
        loss.backward()
        optimizer.step()
        if turn % 2 == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
            optimizer.step()"""
_SCALED = """\
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.step()"""
_HELPED = """\
        loss.backward()
        update(optimizer)
        print(loss.item())
        update(optimizer)"""
_TURNS = """\
        loss.backward()
        optimizer.step()
        model(x).square().mean().backward()
        optimizer.step()"""
_SIDES = """\
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
            optimizer.step()
        else:
            optimizer.step()"""
_OTHERS = """\
        loss.backward()
        optimizer.step()
        other.step()"""
_MAYBE = """\
        loss.backward()
        if clip:
            scaler.step(optimizer)
        if not clip:
            optimizer.step()"""
_CLOSURE = """\
        loss.backward()
        optimizer.step()
        optimizer.step(lambda: model(x).mean())"""
_WRITTEN = """\
        loss.backward()
        optimizer.step()
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step()"""
_GIVEN = """\
import torch
import torch.distributed as dist


def fit(model, optimizer, loader, logger):
    model.train()
    for x in loader:
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss)
        logger.log(loss.item())
        optimizer.step()
"""

EXAMPLES = (
    bad("again after clipping", {"train.py": _TRAIN % _CLIPPED}, "train.py:21 warning"),
    bad("the scaler has stepped", {"train.py": _TRAIN % _SCALED}, "train.py:20 warning"),
    bad("a helper, twice", {"train.py": _TRAIN % _HELPED}, "train.py:20 warning"),
    bad("an optimizer that is handed in", {"train.py": _GIVEN}, "train.py:14 warning"),
    good("a backward between", {"train.py": _TRAIN % _TURNS}),
    good("two sides of a test", {"train.py": _TRAIN % _SIDES}),
    good("another optimizer", {"train.py": _TRAIN % _OTHERS}),
    good("one of two", {"train.py": _TRAIN % _MAYBE}),
    good("a closure", {"train.py": _TRAIN % _CLOSURE}),
    good("gradients that are written", {"train.py": _TRAIN % _WRITTEN}),
)  # fmt: skip
