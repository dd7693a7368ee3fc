"""A setting of the model is looked for on the `DistributedDataParallel` around it, which hides it.

**What.** `hasattr(model, "no_weight_decay")` or `getattr(model, "init_params", None)` where `model` is a
`DistributedDataParallel` by then, and the model inside has the attribute.

**Why it hurts.** The wrapper has `module` and none of the attributes of the model. The question is answered with no, or
by the default, and what the setting is for does not happen: no larger learning rate of the new layers, weight decay on
everything, a hook that never runs. Nothing raises. On one GPU, where nothing is wrapped, the setting is found.

**Fix.** Ask the model inside: `hasattr(model.module, ...)`, or build the optimizer before the model is wrapped.

**When it stays quiet.** A function that knows of `.module` or unwraps; a choice that runs the wrapper otherwise; an
attribute that is set on the wrapper; models whose class nobody knows; DeepSpeed engines and other wrappers that pass
attributes on; one process.

**Evidence.** torch 2.13: `hasattr(DistributedDataParallel(m), "init_params")` is False where `m.init_params` is set.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL729",
    name="setting-asked-of-wrapper",
    kind="script",
    severity=Severity.WARNING,
    summary="`hasattr` or `getattr` asks a DistributedDataParallel for what only the model inside has",
    markers=(r"DistributedDataParallel|DDP", r"hasattr\(|getattr\("),
    references=("https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    depends_on_run=True,
    no_experiment="the answer is the same on each rank, and in one process",
)
# Who writes this knows of the model inside.
_KNOWS = re.compile(r"\.module\b|unwrap|[\"']module|without_ddp|isinstance\([^)]*(?:DDP|DistributedDataParallel)")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each question that the wrapper answers for the model inside."""
    if run.context.is_one_process or run.stage is not None:
        return
    for found in run.happenings("hidden-member"):
        event = found.event
        around = function_around(event.module, event.node)
        text = event.module.text(around) if around is not None else event.module.text(event.node)
        if _KNOWS.search(text) or not isinstance(event.node, ast.Call) or _has_other_way(event.module, event.node):
            continue
        wrapped = next((run.makers[a] for a in instances(event.receiver) if a in run.makers), None)
        related = [run.location(wrapped.module, wrapped.node, "wrapped here")] if wrapped is not None else []
        related += [run.location(call.module, call.node, "passes the wrapped model on") for call in found.calls[-1:]]
        name = event.api.rpartition(".")[2]
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{run.text(event.module, event.node, 50)}` asks the DDP wrapper, not the model: `{name}` is not"
            " found, and the setting has no effect",
            hint=f"Ask the model inside (`model.module.{name}`), or do this before the model is wrapped",
            related=tuple(related),
        )


def _has_other_way(module: Module, node: ast.Call) -> bool:
    """Return whether the same choice runs the model as a whole: `... else model(x)`."""
    around = module.parents.get(node)
    while around is not None and not isinstance(around, ast.If | ast.IfExp):
        around = module.parents.get(around) if isinstance(around, ast.expr) else None
    asked = ast.unparse(node.args[0]) if node.args else ""
    calls = (n for n in ast.walk(around) if isinstance(n, ast.Call)) if around is not None else ()
    return any(ast.unparse(call.func) == asked for call in calls)


_TRAIN = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.slow = ["layer.bias"]

    def no_weight_decay(self):
        return {"layer.bias"}

    def forward(self, x):
        return self.layer(x)


def optimizer_of(model):
    %s
    groups = [{"params": [p for n, p in model.named_parameters() if n not in skipped]}]
    return torch.optim.AdamW(groups)


def main(loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = Net().cuda()
    %s
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main(torch.load("data.pt"))
"""
_LATE = "model = DDP(model)\n    optimizer = optimizer_of(model)"
_EARLY = "optimizer = optimizer_of(model)\n    model = DDP(model)"
_HAS = 'skipped = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()'

EXAMPLES = (
    bad("a method", {"train.py": _TRAIN % (_HAS, _LATE)}, "train.py:22"),
    bad(
        "a field, with a default",
        {"train.py": _TRAIN % ('skipped = getattr(model, "slow", ())', _LATE)},
        "train.py:22",
    ),
    bad(
        "only some runs wrap",
        {
            "train.py": _TRAIN
            % (_HAS, _LATE.replace("model = DDP", "if dist.get_world_size() > 1:\n        model = DDP"))
        },
        "train.py:22",
    ),
    good("before the model is wrapped", {"train.py": _TRAIN % (_HAS, _EARLY)}),
    good(
        "the model inside",
        {"train.py": _TRAIN % (_HAS, _LATE.replace("optimizer_of(model)", "optimizer_of(model.module)"))},
    ),
    good(
        "the function takes it out",
        {"train.py": _TRAIN % ('model = getattr(model, "module", model)\n    ' + _HAS, _LATE)},
    ),
    good("the model does not have it either", {"train.py": _TRAIN % ('skipped = getattr(model, "fast", ())', _LATE)}),
)
