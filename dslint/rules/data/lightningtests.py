"""Tests that a trainer of Lightning makes on several devices, over a loader to which it adds a sampler that repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.events import Event
from dslint.python.values import Function, Instance
from dslint.rules.data.undivided import ITERABLE
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import has_several, leaves_samplers, numbers, trainers
from dslint.rules.training.plateaus import instances

_METHOD = "test_dataloader"
_STEP = re.compile(r"\bdef test_step\(")
# What comes out of a test is one number for all samples.
_LOGS = re.compile(r"self\.log(?:_dict)?\(|\.compute\(\)")


@dataclass(frozen=True, slots=True)
class LightningTest:
    """A call of `test`, the trainer, and what makes its loader."""

    call: Event
    trainer: Event
    loader: Event


def padded_tests(run: RunQuery) -> Iterator[LightningTest]:
    """Yield the tests on certainly several devices whose loader Lightning gives a sampler of its own."""
    made = {atom: event for event in trainers(run) for atom in instances(event.result)}
    loaders = list(run.occurrences("makes-loader")) if made else []
    if not any(_STEP.search(m.code) and _LOGS.search(m.code) for m in run.machine.program.modules()):
        return
    for found in run.happenings("trainer-evaluate") if loaders else ():
        event = found.event
        if not event.api.endswith(".test") or event.may or event.receiver is None:
            continue
        trainer = made.get(event.receiver.single) if isinstance(event.receiver.single, Instance) else None
        if trainer is None or not _is_several(run, trainer) or leaves_samplers(trainer):
            continue
        mine = [
            h.event for h in loaders if _is_given(event, h) or ("dataloaders" not in event.arguments and _is_own(h))
        ]
        if mine and all(map(_is_plain, mine)):
            yield LightningTest(event, trainer, mine[0])


def _is_several(run: RunQuery, trainer: Event) -> bool:
    """Return whether a trainer has two devices or machines for certain, or is one of several processes."""
    counts = [numbers(trainer.arguments.get(name)) for name in ("devices", "num_nodes", "gpus")]
    is_counted = any(found and min(found) > 1 for found in counts)
    return has_several(trainer) and (is_counted or run.context.world_size.get_or(1) > 1)


def _is_given(event: Event, loader: Happening) -> bool:
    given = instances(event.arguments.get("dataloaders"))
    return any(atom in given for atom in instances(loader.event.result))


def _is_own(loader: Happening) -> bool:
    """Return whether the method of a module or data module makes a loader, by which Lightning asks for it."""
    functions = (call.function for call in loader.calls)
    return any(isinstance(f, Function) and getattr(f.node, "name", "") == _METHOD for f in functions)


def _is_plain(loader: Event) -> bool:
    """Return whether a loader goes through all items once, so that Lightning adds a sampler that fills up."""
    if loader.api != "torch.utils.data.DataLoader" or loader.open or loader.may:
        return False
    if {"sampler", "batch_sampler"} & loader.arguments.keys():
        return False
    if any(source.role == "dataset" and ITERABLE in source.bases for source in loader.sources):
        return False
    drops = loader.arguments.get("drop_last")
    return drops is None or drops.constants == (False,)
