"""With manual optimisation of Lightning, `training_step` calls `loss.backward()` itself.

**What.** A `LightningModule` sets `automatic_optimization = False`, and its `training_step` (or what that calls) runs
`loss.backward()` instead of `self.manual_backward(loss)`.

**Why it hurts.** Lightning wraps the module in `DistributedDataParallel` and lets `manual_backward` alone prepare the
averaging of the gradients. Past it no gradient is averaged: each rank steps with its own, the ranks train different
models, and the one of rank 0 is saved. Loss scaling of fp16 and the engine of DeepSpeed are left out as well. Nothing
fails.

**Fix.** `self.manual_backward(loss)`, which the fix writes.

**When it stays quiet.** Automatic optimisation; a trainer for one device, or for FSDP; a `backward` in a method of that
name, which Lightning calls; a step that calls `manual_backward`, too (the other pass may want the gradients of an
input); gradients that the module reduces itself.

**Evidence.** Two gloo ranks, lightning 2.6.0, strategy `ddp`: after eight steps with `loss.backward()` the weights of
the ranks differ; with `manual_backward` they are equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.python import attributes
from dslint.python.events import Event
from dslint.python.values import ClassAtom, Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import is_one_process, is_single, strategy_words, trainers
from dslint.rules.wrapping.ddps import averages_by_hand
from dslint.rules.zero.enginenames import called_on

META = RuleMeta(
    code="DSL667",
    name="backward-past-lightning",
    kind="script",
    severity=Severity.WARNING,
    summary="with manual optimisation of Lightning a loss runs its own backward: no gradient is averaged",
    fix="safe",
    markers=(r"lightning", r"automatic_optimization", r"\.backward\("),
    references=(
        "https://lightning.ai/docs/pytorch/stable/model/manual_optimization.html",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/9237",
    ),
    depends_on_run=True,
    no_experiment="the probe runs without Lightning; two ranks of lightning 2.6.0 were run by hand",
)
_MANUAL = re.compile(
    r"automatic_optimization\s*(?::\s*bool\s*)?=\s*False|def automatic_optimization\(self\)[^\n]*:\s*return False"
)
_SELF = ("backward", "manual_backward")
_STEP = "training_step"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each backward of a tensor in a step that Lightning leaves to the module."""
    made = trainers(run)
    if is_one_process(run) or any(is_single(event) or "fsdp" in strategy_words(event) for event in made):
        return
    seen: set[ast.AST] = set()
    for found in run.occurrences("backward"):
        event = found.event
        owner = _owner(run, found)
        if owner is None or event.node in seen or event.api.rpartition(".")[0] != "torch.Tensor":
            continue
        orders = [attributes.lineage(run.machine, cls) for cls in attributes.descendants(run.machine, owner)]
        classes = {base for order in orders for base in order if isinstance(base, ClassAtom)}
        texts = [base.module.text(base.node) for base in classes]
        if not any(_MANUAL.search(text) for text in texts) or any("manual_backward(" in text for text in texts):
            continue
        if not any(averages_by_hand(module) for module in {event.module, owner.module}):
            seen.add(event.node)
            yield _finding(run, event, owner)


def _owner(run: RunQuery, found: Happening) -> ClassAtom | None:
    """Return the module of Lightning in whose training step something happens."""
    functions = [call.function for call in found.calls if isinstance(call.function, Function)]
    if any(function.name in _SELF for function in functions):
        return None
    steps = [function.owner for function in functions if function.name == _STEP]
    owner = steps[0] if steps else None
    is_module = isinstance(owner, ClassAtom) and attributes.is_instance_of(run.machine, owner, "lightning-module")
    return owner if is_module and isinstance(owner, ClassAtom) else None


def _finding(run: RunQuery, event: Event, owner: ClassAtom) -> Finding:
    loss = called_on(event.module, event.node)
    name = run.text(event.module, loss, 40) if loss is not None else "loss"
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{name}.backward()` bypasses `manual_backward` of Lightning: under DDP no gradient is averaged",
        hint=f"Call `self.manual_backward({name})`",
        related=(run.location(owner.module, owner.node, "optimises manually"),),
        fix=_fix(run, event, owner, loss),
    )


def _fix(run: RunQuery, event: Event, owner: ClassAtom, loss: ast.AST | None) -> Fix | None:
    """Write `self.manual_backward(loss)` where the call stands in the class and takes nothing."""
    node, module = event.node, event.module
    is_plain = isinstance(node, ast.Call) and not node.args and not node.keywords
    is_inside = module is owner.module and any(inner is node for inner in ast.walk(owner.node))
    if loss is None or not is_plain or not is_inside or module.path != run.path or "\n" in module.text(loss):
        return None
    text = f"self.manual_backward({module.text(loss)})"
    return Fix("Let Lightning run the backward", (Edit(run.path, module.span(node), text),))


_MODEL = """\
import torch
import lightning as L


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = %s
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        loss = self.layer(batch).mean()
        optimizer.zero_grad()
        %s
        optimizer.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
_PASSED, _RUN = "loss.backward()", "self.manual_backward(loss)"
_TRAIN = """\
import lightning as L
from model import Model

L.Trainer(devices=%s, strategy="%s").fit(Model())
"""
_HELPER = """\
import pytorch_lightning as pl
from torch import nn


class Base(pl.LightningModule):
    automatic_optimization = False

    def update(self, loss, optimizer):
        optimizer.zero_grad()
        %s
        optimizer.step()


class Gan(Base):
    def __init__(self):
        super().__init__()
        self.judge = nn.Linear(8, 1)
        self.maker = nn.Linear(8, 8)

    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        fake = self.maker(batch)
        self.update(self.judge(fake.detach()).mean(), first)
        self.update(-self.judge(fake).mean(), second)
"""
_PROPERTY = (
    (_MODEL % ("2", _PASSED)).replace("        self.automatic_optimization = 2\n", "")
    + """
    @property
    def automatic_optimization(self):
        return False
"""
)
_INPUT = (_MODEL % ("False", _RUN)).replace(
    "        loss = ", "        self.layer(batch).sum().backward()\n        loss = "
)

EXAMPLES = (
    bad(
        "past Lightning",
        {"model.py": _MODEL % ("False", _PASSED), "train.py": _TRAIN % (4, "ddp")},
        "model.py:15 warning",
        fixed={"model.py": _MODEL % ("False", _RUN), "train.py": _TRAIN % (4, "ddp")},
    ),
    bad("in a method of a base class", {"model.py": _HELPER % _PASSED}, "model.py:10 warning"),
    bad("by a property", {"model.py": _PROPERTY}, "model.py:14 warning"),
    good("Lightning runs it", {"model.py": _MODEL % ("False", _RUN), "train.py": _TRAIN % (4, "ddp")}),
    good("Lightning runs it in a base class", {"model.py": _HELPER % _RUN}),
    good("one device", {"train.py": _MODEL % ("False", _PASSED) + "\n\nL.Trainer(devices=1).fit(Model())\n"}),
    good("gradients of an input", {"model.py": _INPUT}),
)
