"""Loaders that give each rank a share of a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslint.rules.training.plateaus import instances

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.rules.runs import RunQuery

_SAMPLER = "torch.utils.data.DistributedSampler"


def divided_loaders(run: RunQuery) -> dict[int, Event]:
    """Return what makes or prepares loaders that give each rank a share, by its node."""
    found: dict[int, Event] = {}
    for made in run.happenings("makes-loader"):
        samplers = instances(made.event.arguments.get("sampler"))
        if samplers and all(run.machine.libraries.is_class(str(atom.cls), _SAMPLER) for atom in samplers):
            found[id(made.event.node)] = made.event
    loaders = {atom: f.event for f in run.happenings("makes-loader") for atom in instances(f.event.result)}
    for prepared in run.happenings("prepares"):
        for atom in (a for value in prepared.event.arguments.values() for a in instances(value)):
            if atom in loaders:
                found[id(loaders[atom].node)] = found[id(prepared.event.node)] = prepared.event
    return found
