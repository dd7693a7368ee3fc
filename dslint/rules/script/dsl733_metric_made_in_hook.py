"""A metric of torchmetrics is made in a hook of Lightning, stays in the memory of the host, and NCCL gathers its state.

**What.** A hook or step that runs after Lightning has moved the module (`on_validation_start`, `training_step`), or a
callback, makes a metric: `self.score = MulticlassAccuracy(10)`. Later all ranks call `self.score.compute()`, or
Lightning does for `self.log("score", self.score)`. The run has several processes on GPUs.

**Why it hurts.** Lightning moves the metrics that a module holds when it is set up, and no others: this one keeps its
state on the CPU. `compute()` gathers the state from all ranks through NCCL, which takes tensors of GPUs only:
`No backend type associated with device type cpu`. Many metrics raise at the first `update` already, for their state and
the batch lie on two devices. On one GPU, a metric that moves its values itself works.

**Fix.** Make the metric in `__init__` (or `setup`) and call `reset()` in the hook; or `.to(self.device)` after the
constructor.

**When it stays quiet.** A metric that is made in `__init__`, `setup` or `configure_model` of the module; one that is
moved; `sync_on_compute=False`, a `dist_sync_fn`; a metric that may be another one; trainers of one process, on CPUs, or
with gloo.

**Evidence.** torchmetrics 1.9, `gather_all_tensors` in utilities/distributed.py calls `all_gather` with the state as it
lies; lightning 2.6, `DDPStrategy.setup` moves the module before the first of these hooks. DSL602 has records of NCCL
and tensors of the host.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Call, Event
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Const, Function, Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.hostlogs import is_on_gpus
from dslint.rules.training.lightnings import is_one_process, trainers

META = RuleMeta(
    code="DSL733",
    name="metric-made-in-hook",
    kind="script",
    severity=Severity.WARNING,
    summary="a metric is made after Lightning has moved the module: its state stays on the CPU, and NCCL refuses it",
    markers=(r"torchmetrics", r"lightning"),
    references=(
        "https://github.com/meteofrance/py4cast/pull/42",
        "https://lightning.ai/docs/torchmetrics/stable/pages/overview.html#metrics-and-devices",
    ),
    depends_on_run=True,
    no_experiment="it takes Lightning, torchmetrics and NCCL; DSL602 has records of tensors of the host under NCCL",
)
_PARTS = ("train", "validation", "test", "predict")
_LATE = frozenset(
    ["on_sanity_check_start", *(f"{part}_step" for part in ("training", *_PARTS[1:]))]
    + [f"on_{part}{when}" for part in _PARTS for when in ("_start", "_epoch_start", "_batch_start")]
    + [f"on_{part}{when}" for part in _PARTS for when in ("_batch_end", "_epoch_end")]
)
_OWN_SYNC = ("sync_on_compute", "dist_sync_fn", "distributed_available_fn", "compute_on_cpu")
_LOGS = "collective-if sync_dist=True"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each metric of a late hook whose state all ranks gather."""
    made = trainers(run)
    if is_one_process(run) or not made or not all(is_on_gpus(run, event) for event in made):
        return
    late = dict(_made_late(run))
    moved = {atom for found in run.occurrences("moves-to-device") for atom in _instances(found.event.receiver)}
    told: set[ast.AST] = set()
    for event in _gathers(run) if late else ():
        value = event.arguments.get("value") if _LOGS in event.tags else event.receiver
        found = _instances(value)
        if not found or event.may or any(atom.node not in late or atom in moved for atom in found):
            continue
        for node in {atom.node: None for atom in found if atom.node not in told}:
            told.add(node)
            module, hook = late[node]
            yield run.finding(
                META,
                module,
                node,
                f"`{hook}` makes this metric, so that nothing moves it to the GPU: NCCL cannot gather its state",
                hint="Make it in `__init__` and call `reset()` here, or move it with `.to(self.device)`",
                related=(run.location(event.module, event.node, "all ranks gather its state"),),
            )


def _gathers(run: RunQuery) -> Iterator[Event]:
    """Yield the calls by which all ranks gather the state of a metric."""
    for found in run.occurrences("metric", _LOGS):
        if found.event.api.endswith(".compute") or _LOGS in found.event.tags:
            yield found.event


def _made_late(run: RunQuery) -> Iterator[tuple[ast.AST, tuple[Module, str]]]:
    """Yield the calls that make a metric after the module was moved, with the hook that they run in."""
    for found in run.occurrences("metric"):
        event = found.event
        if not run.machine.libraries.is_class(event.api, "metric") or any(
            name in event.arguments for name in _OWN_SYNC
        ):
            continue
        hook = _hook(run, found)
        made = _constructor(found)
        if hook is None or made is None or _is_moved(*made):
            continue
        yield made[1], (made[0], hook)


def _constructor(found: Happening) -> tuple[Module, ast.AST] | None:
    """Return the call that makes a metric; of a class of the project the one that runs its `__init__`."""
    event = found.event
    if ast.unparse(getattr(event.node, "func", event.node)).startswith("super("):
        chain = [call for call in found.calls if _name(call) == "__init__"]
        return (chain[-1].module, chain[-1].node) if chain else None
    return event.module, event.node


def _hook(run: RunQuery, found: Happening) -> str | None:
    """Return the late hook of a module, or the method of a callback, in which something happens."""
    for call in found.calls:
        owner = call.function.owner if isinstance(call.function, Function) else None
        if not isinstance(owner, ClassAtom):
            continue
        is_called = attributes.is_instance_of(run.machine, owner, "lightning.LightningModule", "lightning.Callback")
        if is_called and _name(call) in _LATE:
            return _name(call)
    return None


def _name(call: Call) -> str:
    return call.function.name if isinstance(call.function, Function) else ""


def _is_moved(module: Module, node: ast.AST) -> bool:
    """Return whether what a call makes is moved at once: `Metric().to(device)`, `Collection([...]).to(device)`."""
    at = module.parents.get(node)
    while at is not None and not isinstance(at, ast.stmt):
        if isinstance(at, ast.Attribute) and at.attr in ("to", "cuda"):
            return True
        at = module.parents.get(at)
    return False


def _instances(value: Value | None) -> list[Instance]:
    """Return the objects that a value may be; none where it may be something else than `None` besides."""
    atoms = [atom for atom in value.atoms if not (isinstance(atom, Const) and atom.value is None)] if value else []
    return [a for a in atoms if isinstance(a, Instance)] if all(isinstance(a, Instance) for a in atoms) else []


_MODEL = """\
import lightning as L
import torch
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy


class Share(Metric):
    def __init__(self, classes=4):
        super().__init__()
        self.add_state("hits", torch.zeros(classes), dist_reduce_fx="sum")

    def update(self, scores, labels):
        self.hits += torch.bincount(scores.argmax(1) == labels, minlength=4).to(self.device)

    def compute(self):
        return self.hits / self.hits.sum()


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 4)
        %s

    def training_step(self, batch, index):
        return self.net(batch["x"]).square().mean()

    def %s(self):
        %s

    def validation_step(self, batch, index):
        self.score.update(self.net(batch["x"]), batch["y"])

    def on_validation_epoch_end(self):
        %s

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
_TRAIN = """\
import lightning as L

from data import loaders
from model import Model

if __name__ == "__main__":
    trainer = L.Trainer(accelerator=%s, devices=4, strategy="ddp")
    trainer.fit(Model(), *loaders())
"""
_COMPUTE = 'self.log("score", self.score.compute().mean())'


def _project(
    hook: str, made: str, first: str = "", end: str = _COMPUTE, accelerator: str = '"gpu"', more: str = ""
) -> dict[str, str]:
    return {"train.py": _TRAIN % accelerator, "model.py": _MODEL % (first, hook, made, end) + more}


_HELPER = "\n    def make(self):\n        self.score = Share(8)\n"
_START = "on_validation_start"

EXAMPLES = (
    bad("a metric of the project", _project(_START, "self.score = Share()"), "model.py:29 warning"),
    bad("a metric of the library", _project(_START, "self.score = MulticlassAccuracy(4)"), "model.py:29 warning"),
    bad("in a helper", _project("on_validation_epoch_start", "self.make()", more=_HELPER), "model.py:41 warning"),
    bad(
        "Lightning computes it",
        _project(_START, "self.score = MulticlassAccuracy(4)", end='self.log("score", self.score)'),
        "model.py:29 warning",
    ),
    good("in the constructor", _project(_START, "self.score.reset()", "self.score = Share()")),
    good("before the module is moved", _project("configure_model", "self.score = Share()")),
    good("moved at once", _project(_START, "self.score = Share().to(self.device)")),
    good("moved afterwards", _project(_START, "self.score = Share()\n        self.score.to(self.device)")),
    good("each rank for itself", _project(_START, "self.score = MulticlassAccuracy(4, sync_on_compute=False)")),
    good("on CPUs", _project(_START, "self.score = Share()", accelerator='"cpu"')),
)
