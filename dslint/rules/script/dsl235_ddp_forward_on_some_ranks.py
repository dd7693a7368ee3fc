"""Only some ranks call the forward of a `DistributedDataParallel` model.

**What.** The wrapper itself (`model(batch)`, not `model.module(batch)`) is called behind a test that only some ranks
pass, directly or in a helper of the file that gets the wrapper (or has it as `self.model`), mostly to evaluate on rank
0 or to show images; and gradients are on, or the next thing that the others do is another collective.

**Why it hurts.** Before a forward the wrapper broadcasts the buffers of the model (running statistics of BatchNorm,
rotary frequencies) from rank 0 to all ranks, in evaluation mode as well. The broadcast of rank 0 meets whatever the
others do next, a barrier or the gradients of the next step: both sides wait until the process-group timeout.

**Fix.** Call `model.module(batch)` (or the model that was wrapped) behind the test, or evaluate on every rank.

A model that accelerate has prepared counts as a wrapper where its class stands in the file and has a BatchNorm.

**When it stays quiet.** `model.module(...)`; `broadcast_buffers=False`; a forward without gradients after which
training goes on, because the wrapper then leaves out its next broadcast and the counts agree again; a test that every
rank passes. A model without buffers does not hang; the file seldom shows that, so the finding is a warning.

**Evidence.** Two gloo ranks, BatchNorm, torch 2.13: `no_grad` evaluation on rank 0 and then a barrier: rank 0 waits in
`_distributed_broadcast_coalesced`, rank 1 in `barrier`; with gradients the next backward of rank 1 waits. Followed by
training steps, or without buffers: passes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.dotted import is_self, last_name
from dslint.model.script.given import given
from dslint.model.script.parameters import bound
from dslint.model.script.quick import call_name, flat
from dslint.model.script.ranks.guards import Guard
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL235",
    name="ddp-forward-on-some-ranks",
    kind="script",
    severity=Severity.WARNING,
    summary="only some ranks call a DDP model, whose forward broadcasts buffers to all of them",
    markers=(r"DistributedDataParallel|\.prepare\(", r"rank|is_main|master|main_process"),
    versions=("torch>=1.8",),
    references=(
        "https://github.com/pytorch/pytorch/pull/59666",
        "DistributedDataParallel._pre_forward in torch/nn/parallel/distributed.py",
    ),
)

_HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


"""
_EVALUATE = """\
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return [model(batch) for batch in loader]


"""

_TRAINER = """\
from accelerate import Accelerator
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.%s(8))

    def forward(self, images):
        return self.layers(images)


class Trainer:
    def __init__(self, optimizer, loader):
        self.accelerator = Accelerator()
        self.model, self.optimizer, self.loader = self.accelerator.prepare(Net(), optimizer, loader)

    def show(self, images):
        save(self.model(images))

    def train(self):
        for images in self.loader:
            self.accelerator.backward(self.model(images).mean())
            self.optimizer.step()
            if self.accelerator.is_main_process:
                self.show(images)
"""

EXAMPLES = (
    bad(
        "a method of the trainer shows images on the main process",
        {"train.py": _TRAINER % "BatchNorm2d"},
        "train.py:27",
    ),
    good("the model has no buffers", {"train.py": _TRAINER % "InstanceNorm2d"}),
    good(
        "the model without the wrapper",
        {
            "train.py": (_TRAINER % "BatchNorm2d").replace(
                "save(self.model(images))", "save(self.accelerator.unwrap_model(self.model)(images))"
            )
        },
    ),
    bad(
        "rank 0 evaluates while the others wait at a barrier",
        {
            "train.py": _HEAD + _EVALUATE + "def main(net, loader, test_loader):\n    model = DDP(net)\n"
            "    for epoch in range(3):\n        if dist.get_rank() == 0:\n"
            "            evaluate(model, test_loader)\n        dist.barrier()\n"
        },
        at="train.py:16",
    ),
    bad(
        "a forward with gradients on rank 0",
        {
            "train.py": _HEAD + "def main(net, optimizer, loader, example):\n    model = DDP(net)\n"
            "    for batch in loader:\n        model(batch).mean().backward()\n        optimizer.step()\n"
            "        if dist.get_rank() == 0:\n            print(model(example).mean())\n"
        },
        at="train.py:12",
    ),
    bad(
        "the others wait in their own arm, and the model is wrapped wherever there are others",
        {
            "train.py": _HEAD + "class Trainer:\n    def __init__(self, net):\n        self.model = net\n"
            "        if dist.is_initialized():\n            self.model = DDP(self.model)\n\n"
            "    @torch.no_grad()\n    def score(self, loader):\n"
            "        return [self.model(batch) for batch in loader]\n\n"
            "    def validate(self, loader):\n        if dist.is_initialized() and dist.get_rank() != 0:\n"
            "            dist.barrier()\n            return None\n        scores = self.score(loader)\n"
            "        dist.barrier()\n        return scores\n"
        },
        at="train.py:20",
    ),
    good(
        "the model is wrapped by another choice than that of several ranks",
        {
            "train.py": _HEAD + _EVALUATE + "def main(net, test_loader, sharded):\n    model = net\n"
            "    if not sharded:\n        model = DDP(model)\n    if dist.get_rank() == 0:\n"
            "        evaluate(model, test_loader)\n    dist.barrier()\n"
        },
    ),
    good(
        "the others run the wrapper as well",
        {
            "train.py": _HEAD + _EVALUATE + "def main(net, test_loader):\n    model = DDP(net)\n"
            "    if dist.get_rank() == 0:\n        scores = evaluate(model, test_loader)\n    else:\n"
            "        evaluate(model, test_loader)\n    dist.barrier()\n"
        },
    ),
    good(
        "the model inside the wrapper, or every rank",
        {
            "train.py": _HEAD + _EVALUATE + "def main(net, test_loader):\n    model = DDP(net)\n"
            "    scores = evaluate(model, test_loader)\n    if dist.get_rank() == 0:\n"
            "        print(scores)\n        evaluate(model.module, test_loader)\n    dist.barrier()\n"
        },
    ),
    good(
        "without gradients, and training goes on",
        {
            "train.py": _HEAD + _EVALUATE + "def main(net, optimizer, loader, test_loader):\n    model = DDP(net)\n"
            "    for batch in loader:\n        model(batch).mean().backward()\n        optimizer.step()\n"
            "        if dist.get_rank() == 0:\n            evaluate(model, test_loader)\n"
        },
    ),
    good(
        "no broadcast of buffers",
        {
            "train.py": _HEAD + _EVALUATE + "def main(net, test_loader):\n"
            "    model = DDP(net, broadcast_buffers=False)\n    if dist.get_rank() == 0:\n"
            "        evaluate(model, test_loader)\n    dist.barrier()\n"
        },
    ),
)


def precheck(tree: ast.Module) -> bool:
    """A wrapper is made in this file."""
    calls = flat(tree).nodes(ast.Call)
    names = {call_name(c) for c in calls}
    if "prepare" in names and any(name.startswith("BatchNorm") for name in names):
        return True
    made = [c for c in calls if call_name(c) in ("DistributedDataParallel", "DDP")]
    return bool(made)


class Check(ScriptCheck):
    """Looks at every call behind a rank guard."""

    def start(self) -> None:
        """One finding for each guard: the loop of an evaluation is one mistake."""
        self._seen: set[int] = set()
        made = [n for n in self.ctx.tree.every(cst.Call) if self.ctx.called(n) == "DistributedDataParallel"]
        # A wrapper leaves its buffers alone, or may do so.
        passed = [given(self.ctx.names, call) for call in made]
        self._is_silent = any(p.is_open or "broadcast_buffers" in p.named for p in passed)

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on a wrapper that is called, or handed to a helper that calls it."""
        guard = self.ctx.guard(node) if not self._is_silent else None
        if guard is None or id(guard.owner) in self._seen:
            return
        forward = node if self._is_wrapper(node.func) else self._inside(node)
        if forward is None:
            return
        training = self.ctx.training
        grad = not (training.has_no_graph(forward) or training.has_no_graph(node))
        after = self._next_collective(node, guard)
        if after is not None or (grad and self.ctx.loops(node)):
            self._seen.add(id(guard.owner))
            self._report(node, forward, guard, grad, after)

    def _inside(self, call: cst.Call) -> cst.Call | None:
        """The forward in a helper of this file that gets the wrapper as an argument."""
        helper = self.ctx.names.local_function(call)
        own = self._own_forward(helper) if helper is not None else None
        if own is not None:
            return own
        given = [a for a in call.args if isinstance(a.value, cst.Name | cst.Attribute) and not a.star]
        if helper is None or not any(self._is_ddp(a.value) for a in given):
            return None
        names = self._parameters(helper, call)
        for node in self.ctx.tree.own_nodes(helper.body):
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in names:
                return node if self.ctx.guard(node) is None else None
        return None

    def _own_forward(self, method: cst.FunctionDef) -> cst.Call | None:
        """The forward of `self.model` in a method."""
        for node in self.ctx.tree.own_nodes(method.body):
            func = node.func if isinstance(node, cst.Call) else None
            if isinstance(func, cst.Attribute) and is_self(func.value) and self._is_wrapper(func):
                return node if isinstance(node, cst.Call) and self.ctx.guard(node) is None else None
        return None

    def _is_wrapper(self, called: cst.BaseExpression) -> bool:
        """A DDP model; or what accelerate makes one of, when the model certainly has buffers that change."""
        kind = self.ctx.kind(called)
        if kind == "prepared_model":
            return self._has_running_statistics(called)
        return self._is_ddp(called)

    def _is_ddp(self, model: cst.BaseExpression) -> bool:
        return self.ctx.kind(model) == "ddp" or self._is_wrapped_on_ranks(model)

    def _is_wrapped_on_ranks(self, called: cst.BaseExpression) -> bool:
        """`if is_distributed: model = DDP(model)`: wherever there is another rank, the model is wrapped."""
        if self.ctx.objects.likely(called) != "ddp":
            return False
        made = [thing.made for thing in self.ctx.objects.things(called) if thing.kind == "ddp"]
        return all(call is not None and not self.ctx.guards.is_conditional(call) for call in made)

    def _has_running_statistics(self, called: cst.BaseExpression) -> bool:
        """The class of the model stands in this file and has a BatchNorm."""
        made = self.ctx.objects.made(called)
        if made is None or self.ctx.run.zero_stage.is_known:
            return False
        given = [s.node for a in made.args for s in self.ctx.loaders.sources.of(a.value)]
        names = {n.func.value for n in given if isinstance(n, cst.Call) and isinstance(n.func, cst.Name)}
        classes = filter(None, map(self.ctx.names.local_class, sorted(names)))
        models = [c for c in classes if "torch.nn.Module" in self.ctx.class_bases(c.name.value)]
        inside = (n for owner in models for n in self.ctx.descendants(owner) if isinstance(n, cst.Call))
        return len(models) == 1 and any(last_name(n.func).startswith("BatchNorm") for n in inside)

    def _parameters(self, helper: cst.FunctionDef, call: cst.Call) -> set[str]:
        """The parameters that hold the wrapper, where the helper does not assign them anew."""
        passed = bound(self.ctx.tree, call, helper).passed
        wrappers = (name for name, value in passed.items() if self.ctx.kind(value) == "ddp")
        return {name for name in wrappers if len(self.ctx.names.bindings(name, helper.body)) == 1}

    def _next_collective(self, node: cst.Call, guard: Guard) -> cst.Call | None:
        """What the other ranks call next, in their arm or with all, unless it is the wrapper again."""
        scope = self.ctx.enclosing_function(node) or self.ctx.tree.module
        others = list(self._in_other_arm(node, guard))
        for later in (*others, *(c for c in self._after(scope, guard.owner) if self.ctx.guard(c) is None)):
            if self._is_wrapper(later.func) or self._inside(later) is not None:
                return None
            event = self.ctx.summaries.event(later)
            if event is not None and event.collectives[0].family in ("torch", "accelerate"):
                return later
        return None

    def _in_other_arm(self, node: cst.Call, guard: Guard) -> Iterator[cst.Call]:
        """The calls of `if not is_main: dist.barrier(); return`, or of the `else` of the test."""
        arms = (guard.owner.body, guard.owner.orelse) if isinstance(guard.owner, cst.If) else ()
        for arm in arms:
            if arm is not None and not self.ctx.tree.contains(arm, node):
                yield from (n for n in self.ctx.tree.own_nodes(arm) if isinstance(n, cst.Call))

    def _after(self, scope: cst.CSTNode, owner: cst.CSTNode) -> Iterator[cst.Call]:
        end = self.ctx.tree.position(owner) + len(self.ctx.descendants(owner))
        for node in self.ctx.tree.own_nodes(scope):
            if isinstance(node, cst.Call) and self.ctx.tree.position(node) >= end:
                yield node

    def _report(self, node: cst.Call, forward: cst.Call, guard: Guard, grad: bool, after: cst.Call | None) -> None:
        name = self.ctx.text(forward.func)
        what = (
            f"the DDP model `{name}` is called"
            if forward is node
            else f"`{self.ctx.text(node.func)}` calls the DDP model"
        )
        related = [self.ctx.location(guard.test, "only some ranks get past this test")]
        if forward is not node:
            related.append(self.ctx.location(forward, "the forward of the wrapper"))
        if after is not None:
            related.append(self.ctx.location(after, "what the others do next"))
        meets = f"`{self.ctx.text(after.func)}`" if after is not None else "the gradients of the next step"
        self.report(
            node,
            f"{what} by some ranks only: its forward broadcasts the buffers of the model to all ranks, which meets "
            f"{meets}, and both sides wait",
            hint="Call `.module` behind the test, or evaluate on every rank",
            related=tuple(related),
            facts={"grad": grad},
        )
