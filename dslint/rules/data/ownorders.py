"""Rows of a data set that every process puts in an order of its own, before the ranks share them out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.python.events import Event, events
from dslint.python.source import Module
from dslint.rules.ranks.intent import says_several
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import trainers

_FIXING = ("seed", "seeds", "generator", "generators")
_SHARES = ("prepares", "makes-engine", "makes-distributed-sampler")
_TRAINS = ("backward", "engine-backward", "trainer-train")
SEEDS = re.compile(r"(?<!def )(?<![\w.])(?:\w+\.)*(?!manual_|initial_)\w*seed\w*\(", re.I)


def own_orders(run: RunQuery) -> Iterator[Event]:
    """Yield the shuffles of rows without a seed, in a run whose ranks share them out and that has seeded nothing."""
    found = [h for h in run.happenings("own-order") if _is_own(run, h.event)]
    if found and _shares(run):
        yield from (happening.event for happening in found if not is_seeded(run, happening))


def _is_own(run: RunQuery, event: Event) -> bool:
    """Return whether all ranks run a shuffle of rows that gets no seed."""
    if event.open or event.lanes != run.machine.worlds.full:
        return False
    given = (event.arguments.get(name) for name in _FIXING)
    if any(value is not None and value.constants != (None,) for value in given):
        return False
    shuffle = event.arguments.get("shuffle")
    return shuffle is None or shuffle.constants == (True,)


def _shares(run: RunQuery) -> bool:
    """Return whether several ranks train, and share the rows."""
    streams = (h.event.arguments.get("streaming") for h in run.happenings("downloads"))
    if run.path.endswith(".ipynb") and not run.has("spawns", "starts-group"):
        return False  # a notebook is one process, unless it starts others
    if not run.has(*_TRAINS) or any(value is not None and value.constants != (False,) for value in streams):
        return False
    return run.has(*_SHARES) or (run.has("trainer", "wraps-model") and says_several(run, entry_modules(run)))


def entry_modules(run: RunQuery) -> list[Module]:
    """Return the modules in which the entries of a run stand."""
    return list({id(entry.module): entry.module for entry in run.entries}.values())


def is_seeded(run: RunQuery, found: Happening, library: str = "numpy") -> bool:
    """Return whether something may have seeded the generator of a library before it is used.

    A Trainer does, too; that of Lightning does not.
    """
    own = set(trainers(run))
    for event in events(found.entry.tree):
        if event is found.event:
            break
        if ("trainer" in event.tags and event not in own) or ("seeds" in event.tags and _seeds(event, library)):
            return True
    around = [found.event.module, *(call.module for call in found.calls), *entry_modules(run)]
    return any(module.search(SEEDS) or _imports_seeding(module) for module in around)


def _imports_seeding(module: Module) -> bool:
    """Return whether a module imports a function that seeds by its name, under another one."""
    pairs = ((name, original) for name, origins in module.imported.items() for _, original in origins)
    return any(name != original and "seed" in original.lower() for name, original in pairs)


def _seeds(event: Event, library: str) -> bool:
    """Return whether a call seeds the generator of a process, and not one of its own or of another library."""
    seeded = event.api.partition(".")[0]
    return event.receiver is None and (seeded == library or seeded not in ("torch", "numpy", "random"))
