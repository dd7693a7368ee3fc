"""Values on the host that Lightning reduces over NCCL: `self.log(name, value.cpu(), sync_dist=True)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Event
from dslint.python.source import Module
from dslint.python.values import Value
from dslint.rules.ranks.hosttensors import HostTensors
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import has_several, strategy_words, trainers

_TAG = "collective-if sync_dist=True"
_GPUS = frozenset({"gpu", "cuda", "auto", None})
_NAMES = ("value", "dictionary")

# A module of Lightning that logs what a metric gives.
LOGS = """\
import lightning as L
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 4)
        self.metrics = MetricCollection({"accuracy": MulticlassAccuracy(4)})

    def training_step(self, batch, index):
        return self.net(batch["x"]).square().mean()

    def validation_step(self, batch, index):
        self.metrics.update(self.net(batch["x"]), batch["y"])

    def on_validation_epoch_end(self):
        self.report(self.metrics)

    def report(self, metrics):
        %s
        metrics.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(train, val):
    L.Trainer(devices=4, %s).fit(Classifier(), train, val)
"""
LOGS_OF_DICT = """\
scores = {name: value.cpu() for name, value in metrics.compute().items()}
        self.log_dict(scores%s)"""


def host_logs(run: RunQuery, tensors: HostTensors) -> Iterator[tuple[Event, Event, Module, ast.AST]]:
    """Yield the logs that reduce a tensor of the host, with the trainer and where the tensor was made."""
    made = trainers(run)
    if not made or not all(is_on_gpus(run, event) for event in made):
        return
    for found in run.happenings(_TAG):
        event = found.event
        synced = event.arguments.get("sync_dist")
        if event.may or event.open or synced is None or synced.constants != (True,):
            continue
        places: list[tuple[Module, ast.AST]] = []
        places += [place for value in _values(event) for place in tensors.places(value)]
        places += [place for value in _values(event) for place in tensors.items(value)]
        if places:
            yield event, made[0], *places[0]


def _values(event: Event) -> list[Value]:
    return [event.arguments[name] for name in _NAMES if name in event.arguments]


def is_on_gpus(run: RunQuery, trainer: Event) -> bool:
    """Return whether a trainer runs several processes, and nothing says that they use the host or gloo."""
    accelerator = trainer.arguments.get("accelerator")
    constants = accelerator.constants if accelerator is not None else (None,)
    is_gpu = constants is not None and set(constants) <= _GPUS
    words = strategy_words(trainer)
    is_gloo = any(word in words for word in ("gloo", "cpu", "spawn")) or any("gloo" in m.code for m in _modules(run))
    return is_gpu and has_several(trainer) and not is_gloo


def _modules(run: RunQuery) -> list[Module]:
    return run.machine.program.modules()
