"""Parts that are cut out of an order which each process has drawn for itself: by a slice, or by a sampler."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.python import setorders
from dslint.python.events import Event
from dslint.python.sources import Source
from dslint.python.varies import LOST, ORDER, RANKED
from dslint.rules.data.ownorders import entry_modules, is_seeded
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.ranks.intent import says_several
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import adds_sampler, draws_once
from dslint.rules.training.plateaus import instances

_FIXED = re.compile(r"PYTHONHASHSEED")
_DEALS = ("operator.deal", "operator.block")
_LIBRARIES = ("random", "numpy", "torch")
_ITEMS = ("__getitem__", "__len__", "__iter__")


def cut_orders(run: RunQuery) -> Iterator[tuple[Event, Event]]:
    """Yield the cuts of one part for each rank, with the call that drew the order of what is cut."""
    for found in run.happenings("shares", "takes-block"):
        bits = found.event.snapshot.get("whole", (0, 0, frozenset()))[0]
        if found.event.api in _DEALS and bits & ORDER and not bits & LOST and _is_by_rank(found.event.node):
            order = _drawn_before(run, found, "whole")
            if order is not None:
                yield found.event, order


def dealt_orders(run: RunQuery) -> Iterator[tuple[Event, Event]]:
    """Yield what deals out places in an order which each process has drawn, with the call that drew it.

    A sampler does, and so do a trainer, an engine, and a loader that an Accelerator or Lightning takes.
    """
    told: set[int] = set()
    for found, sources, name in _dealers(run):
        if any(_is_of_items(source) for source in sources):
            order = _drawn_before(run, found, name)
            if order is not None and id(order.node) not in told:
                told.add(id(order.node))
                yield found.event, order


def set_orders(run: RunQuery) -> Iterator[tuple[Event, Event]]:
    """Yield what deals out places in the order of a set of texts, with the code that follows this order."""
    orders = [found for found in run.occurrences(setorders.TAG) if found.event.lanes == run.machine.worlds.full]
    if not orders or any(module.search(_FIXED) for module in run.machine.program.modules()):
        return
    if draws_once(run) or run.has("spawns") or any(_draws_order(h.event) for h in run.occurrences("shuffles")):
        return
    told: set[int] = set()
    for found, sources, _ in _dealers(run):
        for source in (source for source in sources if _is_of_items(source)):
            inside = {id(node) for _, code in source.code for node in ast.walk(code)}
            mine = [order for order in orders if id(order.event.node) in inside and order.entry is found.entry]
            near = mine or [order for order in orders if order.entry is found.entry]
            if near and id(near[-1].event.node) not in told:
                told.add(id(near[-1].event.node))
                yield found.event, near[-1].event


def _dealers(run: RunQuery) -> Iterator[tuple[Happening, list[Source], str]]:
    """Yield the calls that deal out the places of a data set, with its sources and the name of its argument."""
    for found in run.happenings("makes-distributed-sampler"):
        replicas = found.event.arguments.get("num_replicas")
        if not found.event.open and (replicas is None or replicas.constants != (1,)):
            yield found, found.event.sources, "dataset"
    for found in run.happenings("trainer", "makes-engine"):
        if found.event.sources and (run.has("makes-engine") or says_several(run, entry_modules(run))):
            yield found, found.event.sources, "train_dataset" if "trainer" in found.event.tags else "training_data"
    taken = {a for f in run.occurrences("prepares") for v in f.event.arguments.values() for a in instances(v)}
    for found in run.happenings("makes-loader"):
        is_taken = bool(taken & set(instances(found.event.result))) or bool(adds_sampler(run))
        if is_taken and all(source.role == "dataset" for source in found.event.sources):
            yield found, found.event.sources, "dataset"


def _is_by_rank(node: ast.AST) -> bool:
    """Return whether a cut takes every so many items from one on that is no constant; other calls make all parts."""
    if not isinstance(node, ast.Subscript):
        return True
    start = node.slice.lower if isinstance(node.slice, ast.Slice) else None
    return start is not None and not isinstance(start, ast.Constant)


def _is_of_items(source: Source) -> bool:
    """Return whether the items of a data set are in such an order: what else it holds may be."""
    if source.role != "dataset" or not source.ordered:
        return False
    if not source.is_own:
        return "" in source.ordered
    methods = (n for _, code in source.code for n in ast.walk(code) if isinstance(n, ast.FunctionDef))
    inner = (n for method in methods if method.name in _ITEMS for n in ast.walk(method))
    return any(isinstance(n, ast.Attribute) and n.attr in source.ordered for n in inner)


def _draws_order(event: Event) -> bool:
    """Return whether a call draws an order which each process may have for itself, and not parts of a whole."""
    return bool(event.drawn) and "draws-parts" not in event.tags


def _drawn_before(run: RunQuery, cut: Happening, name: str) -> Event | None:
    """Return the call that drew the order of what is cut, where each process certainly has one of its own."""
    drawn: list[Happening] = []
    for found in run.occurrences("shuffles"):
        if found.entry is cut.entry and _draws_order(found.event):
            drawn.append(found)
    place = cut.event.origins.get(name)
    same = [found for found in drawn if place is not None and found.event.node is place[1]]
    of_sets = run.has(setorders.TAG)  # the order may be that of a set
    known = same or ([] if of_sets else drawn)
    last = known[-1] if known and not draws_once(run) else None
    if last is None or last.event.open or last.event.lanes != run.machine.worlds.full:
        return None
    if last.event.drawn & RANKED:
        return last.event
    library = str(row_of(run, last.event).get("generator", last.event.api.partition(".")[0]))
    is_program = last.entry.kind == "script" and library in _LIBRARIES
    return last.event if is_program and not is_seeded(run, last, library) else None
