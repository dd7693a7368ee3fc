"""Loaders that give each rank a share of a data set."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dslint.python.varies import HOST, LOST, RANDOM, RANK
from dslint.rules.training.plateaus import instances

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.python.sources import Source
    from dslint.rules.runs import RunQuery

# Cuts of one part for each rank: every so many items, or a block.
_DEALS = ("operator.deal", "operator.block")
_SAMPLER = "torch.utils.data.DistributedSampler"


def divided_loaders(run: RunQuery) -> dict[int, Event]:
    """Return what makes or prepares loaders that give each rank a share, by its node."""
    found: dict[int, Event] = {}
    cuts = (found.event for found in run.happenings("shares", "takes-block"))
    deals = {id(event.node) for event in cuts if event.api in _DEALS and not event.may}
    for made in run.happenings("makes-loader"):
        samplers = instances(made.event.arguments.get("sampler"))
        if samplers and all(run.machine.libraries.is_class(str(atom.cls), _SAMPLER) for atom in samplers):
            found[id(made.event.node)] = made.event
        if any(_deals(source, deals) for source in made.event.sources) and not made.event.may:
            found[id(made.event.node)] = made.event
    loaders = {atom: f.event for f in run.happenings("makes-loader") for atom in instances(f.event.result)}
    for prepared in run.happenings("prepares"):
        for atom in (a for value in prepared.event.arguments.values() for a in instances(value)):
            if atom in loaders:
                found[id(loaders[atom].node)] = found[id(prepared.event.node)] = prepared.event
    return found


def _deals(source: Source, deals: set[int]) -> bool:
    """Return whether a data set of the project keeps the items of its rank only: `self.rows = rows[rank::world]`."""
    is_part = source.role == "dataset" and source.varies & RANK and not source.varies & (LOST | HOST | RANDOM)
    return bool(is_part) and any(id(node) in deals for _, code in source.code for node in ast.walk(code))
