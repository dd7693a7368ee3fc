"""What rules ask about `DistributedDataParallel` and its kin: which objects it makes, and what it is told."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from dslint.python.models import INSIDE
from dslint.python.places import ordered
from dslint.python.values import Instance
from dslint.rules.training.plateaus import instances, outcomes

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.python.queries.quotients import Named, Quotients
    from dslint.python.source import Module
    from dslint.rules.runs import Happening, RunQuery

# A script that reduces gradients, or something that it made of them just before, averages by hand.
_GRADIENT = re.compile(r"\bgrad\b|gradients?\b")
_AVERAGES = re.compile(
    r"\.grad\b[\s\S]{0,400}?\b(?:all_?reduce|reduce|average)\w*\("
    r"|\b(?:all_?reduce|reduce|average)\w*\([^)]{0,80}?grad|average_gradients"
    r"|\.all_?reduce\b[\s\S]*?\.grad\b|\.grad\b[\s\S]{0,400}?\.all_?reduce\b"
)
_LINES_BEFORE = 8
# Who writes this knows of the prefix.
_KNOWS = re.compile(r"[\"']module\.?[\"']|strip_prefix|consume_prefix|[\"']module\.")
_UNWRAPS = re.compile("unwrap")


def dynamic_wrapper(run: RunQuery, event: Event) -> Instance | None:
    """Return the DDP that an event makes, when it is without `static_graph` for certain."""
    made = event.result.single if "wraps-model" in event.tags and event.result is not None else None
    if not isinstance(made, Instance) or event.open or not isinstance(made.cls, str):
        return None
    return made if _is_false(event, "static_graph") and run.machine.libraries.is_class(made.cls, "ddp") else None


def plain_wrapper(run: RunQuery, event: Event) -> Instance | None:
    """Return the DDP that an event makes of one model, when every parameter must get a gradient in every step."""
    made = dynamic_wrapper(run, event)
    model = event.arguments.get("module")
    is_certain = not event.may and model is not None and model.single is not None
    return made if is_certain and _is_false(event, "find_unused_parameters") else None


def taken_out(run: RunQuery, wrappers: set[Instance]) -> set[Instance]:
    """Return the wrappers that run nowhere but in calls where the model inside of one may run instead.

    `model.module if isinstance(model, DDP) else model` gives either: the wrapper only where it is no DDP.
    """
    inside = {id(found.event.node) for found in run.occurrences(INSIDE)}
    runs = [(atom, found.event) for found in run.occurrences("forward") for atom in instances(found.event.receiver)]
    elsewhere = {atom for atom, event in runs if id(event.node) not in inside}
    return {atom for atom, _ in runs if atom in wrappers} - elsewhere


def made_wrappers(run: RunQuery, wrap: Happening) -> set[Instance]:
    """Return the wrappers that a call makes."""
    results = [wrap.event.result, *outcomes(wrap.event)]
    return {atom for value in results for atom in instances(value) if is_wrapper(run, atom)}


def is_wrapper(run: RunQuery, atom: Instance) -> bool:
    """Return whether an object is a model that a library has wrapped for several ranks."""
    kinds = ("ddp", "engine", "fsdp", "prepared-model", "fabric-module")
    return isinstance(atom.cls, str) and any(run.machine.libraries.is_class(atom.cls, kind) for kind in kinds)


def wrap_of(run: RunQuery, event: Event) -> Happening | None:
    """Return the call that wrapped the model."""
    mine = set(instances(event.receiver))
    for found in run.occurrences("wraps-model", "prepares"):
        given = {atom for value in found.event.arguments.values() for atom in instances(value)}
        if mine & (given | found.event.modules):
            return found
    return None


def _is_false(event: Event, name: str) -> bool:
    value = event.arguments.get(name)
    return value is None or value.constants == (False,)


def reduces_gradients(event: Event) -> bool:
    """Return whether a collective gets gradients, or what the lines before have made of them."""
    first, last = getattr(event.node, "lineno", 1), getattr(event.node, "end_lineno", 1)
    is_reduction = "reduce" in event.api or "gather" in event.api
    return is_reduction and bool(_GRADIENT.search(event.module.lines(first - _LINES_BEFORE + 1, last)))


def averages_by_hand(module: Module) -> bool:
    """Return whether a file averages gradients itself, by its words."""
    return module.search(_AVERAGES) is not None


def knows_prefix(run: RunQuery) -> bool:
    """Return whether a file of the project speaks of the prefix that a wrapper gives to names."""
    return any(module.search(_KNOWS) for module in run.machine.program.modules())


def unwraps(run: RunQuery) -> bool:
    """Return whether a file of the project speaks of unwrapping models."""
    return any(module.search(_UNWRAPS) for module in run.machine.program.modules())


def wrappers_behind(run: RunQuery, event: Event) -> list[Instance]:
    """Return the wrapped models that a loss was made by, without the collectives that it went through."""
    behind = ordered(event.snapshot.get("self", (0, 0, frozenset()))[2])
    found = [atom for atom in behind if isinstance(atom, Instance)]
    return [a for a in found if not isinstance(a.cls, str) or run.machine.libraries.function(a.cls) is None]


def losses_through(run: RunQuery, tag: str) -> list[tuple[Instance, Event]]:
    """Return the collectives with a tag that fill tensors, each with a backward pass of what was made of these."""
    libraries = run.machine.libraries
    found = []
    for happening in run.occurrences("backward"):
        for _, _, made_by in happening.event.snapshot.values():
            for atom in made_by:
                row = libraries.function(atom.cls) if isinstance(atom.cls, str) else None
                if row is not None and tag in row.tags:
                    found.append((atom, happening.event))
    return found


def wraps_to_average(run: RunQuery, found: Happening) -> bool:
    """Return whether a call certainly gives a model whose backward pass averages gradients."""
    row = run.machine.libraries.function(found.event.api)
    return bool(made_wrappers(run, found)) or (row is not None and "becomes" in row.extra)


def averaging_wrap(run: RunQuery) -> Event | None:
    """Return the first call that certainly gives a model whose backward pass averages gradients."""
    wraps = (found.event for found in run.occurrences("wraps-model", "prepares") if wraps_to_average(run, found))
    return next(wraps, None)


def is_sum(event: Event) -> bool:
    """Return whether a collective adds: it is told of no operation, or of `SUM`."""
    operation = event.nodes.get("op")
    return operation is None or ast.unparse(operation).endswith("SUM")


def is_of_all(event: Event) -> bool:
    """Return whether a collective is one of all ranks: it is told of no group."""
    group = event.arguments.get("group")
    return group is None or group.constants == (None,)


def sums_over_ranks(run: RunQuery, quotients: Quotients) -> dict[Named, Event]:
    """Return the variables and fields that hold a sum over all ranks."""
    found: dict[Named, Event] = {}
    for happening in run.occurrences("collective"):
        event = happening.event
        if not (event.api.endswith(".all_reduce") and is_sum(event) and is_of_all(event)):
            continue
        node = event.node
        name = quotients.named(event.module, node.args[0]) if isinstance(node, ast.Call) and node.args else None
        if name is not None:
            found.setdefault(name, event)
    return found
