"""Loaders that give each rank a share of a data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.python.varies import HOST, LOCAL, LOST, RANDOM, RANK
from dslint.rules.training.plateaus import instances

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.python.sources import Source
    from dslint.rules.runs import RunQuery

# Cuts of one part for each rank: every so many items, or a block.
_DEALS = ("operator.deal", "operator.block", "operator.range")
_OWN = RANK | LOCAL
_UNSURE = LOST | HOST | RANDOM
_SAMPLER = "torch.utils.data.DistributedSampler"


def divided_loaders(run: RunQuery) -> dict[int, Event]:
    """Return what makes or prepares loaders that give each rank a share, by its node."""
    found: dict[int, Event] = {}
    deals = set(_deals(run))
    for made in run.happenings("makes-loader"):
        samplers = instances(made.event.arguments.get("sampler"))
        if samplers and all(run.machine.libraries.is_class(str(atom.cls), _SAMPLER) for atom in samplers):
            found[id(made.event.node)] = made.event
        sources = made.event.sources or made.event.samplers
        if not made.event.may and any(_is_dealt(run, made.event, source, deals) for source in sources):
            found[id(made.event.node)] = made.event
    loaders = {atom: f.event for f in run.happenings("makes-loader") for atom in instances(f.event.result)}
    for prepared in run.happenings("prepares"):
        for atom in (a for value in prepared.event.arguments.values() for a in instances(value)):
            if atom in loaders:
                found[id(loaders[atom].node)] = found[id(prepared.event.node)] = prepared.event
    return found


def _deals(run: RunQuery) -> Iterator[int]:
    """Yield the cuts that give each rank a part of its own, by their nodes."""
    for found in run.happenings("shares", "takes-block"):
        event = found.event
        if event.api not in _DEALS or event.may:
            continue
        start = event.arguments.get("start")
        if event.api != "operator.range" or (start is not None and run.machine.varies(start) & _OWN):
            yield id(event.node)


def _is_dealt(run: RunQuery, event: Event, source: Source, deals: set[int]) -> bool:
    """Return whether a loader goes through the items of its rank only.

    A data set or sampler of the project keeps them (`self.rows = rows[rank::world]`), or one of a library gets them
    (`Subset(data, range(rank, len(data), world))`).
    """
    if not deals or not source.varies & _OWN or source.varies & _UNSURE:
        return False
    given = event.nodes.get(source.role)
    pieces = [piece for _, piece in run.derived.of(event.module, [given]) or ()] if given is not None else []
    return any(id(node) in deals for code in (*(c for _, c in source.code), *pieces) for node in ast.walk(code))
