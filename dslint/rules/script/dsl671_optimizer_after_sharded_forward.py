"""An optimizer is made after a forward pass of a model that `fully_shard` has taken, and before any backward pass.

**What.** `fully_shard(model)`, then an evaluation or a warm-up of the model, then `AdamW(model.parameters())`.

**Why it hurts.** After a forward pass the root keeps its parameters whole for the backward pass that is expected: those
that no block of its own holds, such as embeddings, the last norm and the head. `model.parameters()` gives these whole
tensors then, and the optimizer keeps them. In training the gradients come to the sharded parameters, which the
optimizer does not know: embeddings, norm and head are never updated. Nothing fails.

**Fix.** Make the optimizer right after `fully_shard`, or call `model.reshard()` before it.

**When it stays quiet.** A backward pass in between; `reshard_after_forward` given for the root; a call of `reshard`;
`FullyShardedDataParallel`; a model that is sharded in some runs only.

**Evidence.** Two gloo ranks, torch 2.13: after five steps the parameters of the root are what they were; with the
optimizer made before the evaluation they are not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.order import following
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import models_given, parameter_owners

META = RuleMeta(
    code="DSL671",
    name="optimizer-after-sharded-forward",
    kind="script",
    severity=Severity.WARNING,
    summary="an optimizer is made after a forward pass of a `fully_shard` model: the root's parameters never change",
    markers=(r"fully_shard\(", r"parameters\(", r"backward"),
    references=(
        "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
        "https://github.com/pytorch/pytorch/issues/149205",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each optimizer that gets the parameters which a forward pass has left whole."""
    roots = _roots(run)
    if not roots or any("reshard(" in module.code for module in run.machine.program.modules()):
        return
    asked = parameter_owners(run)
    seen: set[ast.AST] = set()
    for found in run.occurrences("fsdp-forward"):
        models = set(instances(found.event.receiver)) & roots.keys()
        for later in following(found.entry.tree, found.event) if models else ():
            if "backward" in later.tags:
                break
            if "makes-optimizer" in later.tags and later.node not in seen and models & set(models_given(later, asked)):
                seen.add(later.node)
                yield _finding(run, later, found.event, roots[next(iter(models))])


def _roots(run: RunQuery) -> dict[Instance, Event]:
    """Return the models that certainly are sharded in place and keep their parameters whole after a forward pass."""
    found: dict[Instance, Event] = {}
    for happening in run.occurrences("wraps-model"):
        event = happening.event
        row = run.machine.libraries.function(event.api)
        if row is None or "becomes" not in row.extra or event.open or event.may:
            continue
        stays = event.arguments.get("reshard_after_forward")
        module = event.arguments.get("module")
        atom = module.single if module is not None else None
        if isinstance(atom, Instance) and (stays is None or stays.constants in ((None,), (False,))):
            found[atom] = event
    return found


def _finding(run: RunQuery, made: Event, passed: Event, wrap: Event) -> Finding:
    return run.finding(
        META,
        made.module,
        made.node,
        "This optimizer gets tensors that a forward left unsharded: the sharded parameters are never updated",
        hint="Make the optimizer right after `fully_shard`, before the model runs",
        related=(
            run.location(passed.module, passed.node, "runs the model before"),
            run.location(wrap.module, wrap.node, "sharded here"),
        ),
    )


_TRAIN = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = sum(model(batch).mean() for batch in loader)
    model.train()
    return total


def main(loader, rank):
    dist.init_process_group("nccl")
    model = nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)).to(rank)
    fully_shard(model[1])
    fully_shard(model%s)
    %s
    %s
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate(model, loader)
"""
_CLASS = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, config):
        self.model = nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 8))
        fully_shard(self.model)

    def warm_up(self, batch):
        self.model(batch)

    def train(self, loader):
        %s
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for batch in loader:
            self.model(batch).sum().backward()
            optimizer.step()


def main(loader, batch):
    Trainer({}).train(loader)
"""

EXAMPLES = (
    bad(
        "an evaluation before",
        {"train.py": _TRAIN % ("", "print(evaluate(model, loader))", "pass")},
        "train.py:22 warning",
    ),
    bad(
        "a warm-up in the function",
        {"train.py": _TRAIN % ("", "model(next(iter(loader)))", "pass")},
        "train.py:22 warning",
    ),
    bad("in a class", {"train.py": _CLASS % "self.warm_up(next(iter(loader)))"}, "train.py:16 warning"),
    good("before the model runs", {"train.py": _TRAIN % ("", "pass", "pass")}),
    good("before the model runs, in a class", {"train.py": _CLASS % "pass"}),
    good("sharded again", {"train.py": _TRAIN % ("", "evaluate(model, loader)", "model.reshard()")}),
    good(
        "the root is sharded after each pass",
        {"train.py": _TRAIN % (", reshard_after_forward=True", "evaluate(model, loader)", "pass")},
    ),
    good("a backward pass between", {"train.py": _TRAIN % ("", "model(next(iter(loader))).sum().backward()", "pass")}),
)
