"""Parts of a data set that every process draws for itself, before the ranks share them out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Event
from dslint.python.source import Module
from dslint.python.sources import Source
from dslint.python.varies import HOST, LOST, RANDOM, RANKED
from dslint.rules.data.ownorders import SEEDS, entry_modules
from dslint.rules.ranks.intent import says_several
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import adds_sampler, draws_once
from dslint.rules.training.plateaus import instances


def own_splits(run: RunQuery) -> Iterator[tuple[Module, ast.AST, Event, bool]]:
    """Yield where parts of a data set are drawn that nothing has seeded, with the loader that ranks share them by.

    The last says that chance decides also how many items there are.
    """
    told: set[str] = set()
    if not run.has("wraps-model", "prepares", "trainer-train"):
        return  # a module alone: who calls it may have seeded all ranks
    if run.has("spawns") or draws_once(run):
        return  # what was drawn before the processes start is the same in all of them
    for found in run.happenings("makes-loader", "trainer"):
        parts = [source for source in found.event.sources if _is_drawn(source)]
        if not parts or found.event.open or found.event.lanes != run.machine.worlds.full:
            continue
        modules = [found.event.module, *(call.module for call in found.calls), *entry_modules(run)]
        if not is_shared_out(run, found.event) or not draws_own(run, modules):
            continue
        made = parts[0].made
        home = run.machine.program.home_of(made)
        if home is not None and home.path not in told:
            told.add(home.path)
            yield home, made, found.event, bool(parts[0].chosen)


def splits_by_rank(run: RunQuery) -> Iterator[Event]:
    """Yield the calls that draw parts after a seed of the rank, where the ranks share out what a loader holds."""
    full = run.machine.worlds.full
    draws = {id(found.event.node): found.event for found in run.happenings("shuffles") if not found.event.open}
    for found in run.happenings("makes-loader"):
        if found.event.open or found.event.lanes != full or not is_shared_out(run, found.event):
            continue
        for source in found.event.sources:
            is_own = source.role == "dataset" and source.varies & RANDOM and source.varies & RANKED
            drawn = draws.get(id(source.made))
            if is_own and not source.varies & (LOST | HOST) and drawn is not None:
                del draws[id(source.made)]
                yield drawn
        for drawn in [event for event in draws.values() if event.node in found.event.held]:
            if drawn.drawn & RANKED and drawn.lanes == full:
                del draws[id(drawn.node)]
                yield drawn


def _is_drawn(source: Source) -> bool:
    """Return whether chance decides what a part of a data set holds, and nothing else of each rank does."""
    if source.role == "dataset" and source.chosen and not source.varies & (RANKED | LOST):
        return True
    is_part = source.role == "dataset" and source.path == "torch.utils.data.Subset" and not source.is_own
    return is_part and bool(source.varies & RANDOM) and not source.varies & (RANKED | LOST | HOST)


def is_shared_out(run: RunQuery, loader: Event) -> bool:
    """Return whether the ranks share out what a loader or a trainer holds."""
    if "trainer" in loader.tags:
        return says_several(run, entry_modules(run))
    if any("torch.utils.data.DistributedSampler" in source.bases for source in loader.sources):
        return True
    if any(source.path == "torch.utils.data.DistributedSampler" for source in loader.sources):
        return True
    if any(atom.cls == "torch.utils.data.DistributedSampler" for atom in instances(loader.arguments.get("sampler"))):
        return True
    made = instances(loader.result)
    prepared = [v for found in run.occurrences("prepares") for v in found.event.arguments.values()]
    return any(atom in instances(value) for value in prepared for atom in made) or bool(adds_sampler(run))


def draws_own(run: RunQuery, modules: list[Module]) -> bool:
    """Return whether each process draws other numbers: nothing seeds, or each rank seeds with its own number."""
    own: set[tuple[str, int]] = set()
    for found in run.happenings("seeds"):
        event = found.event
        if event.receiver is not None and event.api.startswith("torch.Generator."):
            continue  # a generator of its own, and not that of the process
        if not any(varies & RANKED for varies, _, _ in event.snapshot.values()):
            return False
        own.add((event.module.path, getattr(event.node, "lineno", 0)))
    for module in modules:
        text = module.source.text
        places = ((module.path, text.count("\n", 0, match.start()) + 1) for match in SEEDS.finditer(text))
        if any(place not in own for place in places):
            return False
    return True
