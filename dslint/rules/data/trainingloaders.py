"""The loaders over which several ranks train a model together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.python.events import Event, Loop
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import adds_sampler as trainer_adds_sampler
from dslint.rules.training.plateaus import instances

_WRAPS = ("wraps-model", "makes-engine", "prepares", "wraps-optimizer")
_TRAINS = ("backward", "engine-backward")
PARALLEL = re.compile(
    r"(?:sequence|tensor|pipeline|model|context|expert)_?parallel(?!\.\w*DataParallel)|autotp|\b[tsp]p_size|ulysses|"
    r"PipelineModule|\bmpu\b|DeviceMesh|init_device_mesh|\brpc\b",
    re.I,
)


def trained_loaders(run: RunQuery) -> Iterator[tuple[Happening, bool]]:
    """Yield what makes a loader that a training loop runs over, and whether Lightning adds a sampler to it.

    Loaders that a library gets hold of, which may divide them, are left out, and so are scripts that divide the model.
    """
    in_loops = looped(run)
    for happening in run.happenings("makes-loader"):
        event = happening.event
        if event.api != "torch.utils.data.DataLoader" or event.module.search(PARALLEL):
            continue
        if any(_name(call.function) == "train_dataloader" for call in happening.calls):
            adds_sampler = trainer_adds_sampler(run)
        else:
            adds_sampler = False if id(event.node) in in_loops else None
        if adds_sampler is not None and not is_taken(run, event):
            yield happening, adds_sampler


def in_training(run: RunQuery, happening: Happening) -> bool:
    """Return whether a Trainer of Lightning gets a loader to train on: by its method, or as the first one passed."""
    if any(_name(call.function) == "train_dataloader" for call in happening.calls):
        return True
    made = instances(happening.event.result)
    fits = (found.event for found in run.occurrences("trainer-train"))
    return any(atom in instances(fit.arguments.get("train_dataloaders")) for fit in fits for atom in made)


def looped(run: RunQuery) -> set[int]:
    """Return the calls that made the loaders over which a loop trains, where the model is wrapped before."""
    wrapped = {id(happening.entry) for happening in run.occurrences(*_WRAPS)}
    steps = (h for h in run.occurrences(*_TRAINS) if id(h.entry) in wrapped)
    loops = [node for step in steps for node in step.around if isinstance(node, Loop)]
    return {id(node) for loop in loops if not loop.module.search(PARALLEL) for node in loop.items}


def _name(function: object) -> str:
    return str(getattr(getattr(function, "node", None), "name", ""))


def is_taken(run: RunQuery, event: Event) -> bool:
    """Return whether a library or unknown code gets hold of the loader, and may divide it or tell it the epoch."""
    made = instances(event.result)
    for found in run.occurrences("prepares", "makes-engine", "trainer", "takes-loader"):
        if any(atom in instances(value) for value in found.event.arguments.values() for atom in made):
            return True
    return False
