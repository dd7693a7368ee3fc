"""The event of a call of a library: what it was given, as it was then."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from dslint.python import commandlines, containers, gradients, paths, ragged, seeds
from dslint.python.attributes import is_instance_of
from dslint.python.binding import Arguments, BoundArguments
from dslint.python.configs import accumulation_of, configured, micro_batch_of, named_stage, stated
from dslint.python.events import Event
from dslint.python.eventtags import of_options, tags_of
from dslint.python.generators import yielded
from dslint.python.handed import options
from dslint.python.libraries import HANDED, Row
from dslint.python.machine import Machine
from dslint.python.parts import modules_in, own_parts
from dslint.python.places import ordered
from dslint.python.sources import loader_samplers, loader_sources, makers_held, trainer_sources, varies_within
from dslint.python.values import Const, Instance, Value, one
from dslint.python.varies import DIVERGENT, LOST, OWN_FILE, RANKED

# Arguments that say where a tensor lies.
PLACES = frozenset({"device", "map_location", "device_map", "device_id", "device_ids", "output_device"})
WRAPPERS = frozenset({"ddp-forward", "engine-forward", "fsdp-forward", "may-gather"})
# Arguments whose items an event keeps.
_KEEPS = frozenset({"makes-optimizer", "saves", "gathers-parameters"})
_HOLDS, _LISTED = PLACES | {"kwargs_handlers", "label_names"}, ("ranks", "ranks_per_subgroup_list", "inputs")
# Calls that write into a tensor, perhaps what they draw.
_DRAWS = frozenset({"initializes", "writes-tensor"})
# Calls that make parameters and buffers of a model equal on all ranks.
_WRAPS = frozenset({"wraps-model", "replicates-model", "prepares", "makes-engine"})


def noted_event(m: Machine, row: Row, bound: BoundArguments, base: Value | None, result: Value, node: ast.AST,
           lanes: int | None = None) -> None:  # fmt: skip
    """Add the event of a call to the tree."""
    given = {**bound.given, **{f"*{at}": value for at, value in enumerate(bound.extra)}, **bound.extra_keywords}
    tags = tags_of(m, row, base, given, is_open=bound.rest is not None)
    base = paths.known(m, base) if base is not None else None
    given = {name: paths.known(m, value) for name, value in given.items()}
    event = Event(
        row.path, tags, node, m.frame.module, base, given, result, m.lanes if lanes is None else lanes, m.control
    )
    event.snapshot = {name: (m.varies(v), m.shape(v), m.made_by(v)) for name, v in given.items()}
    if base is not None:
        event.snapshot["self"] = (m.varies(base), m.shape(base), m.made_by(base))
    named = [*given.items(), *([("self", base)] if base is not None else [])]
    origins = ((name, m.origin(v)) for name, v in named if event.snapshot[name][0] & DIVERGENT)
    event.origins = {name: place for name, place in origins if place is not None}
    event.open = bound.rest is not None or bound.open_keywords is not None or bool(bound.maybe)
    event.batch = bound.batch
    event.nodes = bound.nodes
    event.items = {
        name: m.elements(value.single)
        for name, value in given.items()
        if (name in _HOLDS or name == row.extra.get("root_only")) and isinstance(value.single, Instance)
    } | options(m, given)
    event.items |= of_options(m, row, given)
    if row.tags & _KEEPS:
        event.items |= {name: _held(m, value, node) for name, value in given.items()}
    event.ragged = ragged.gathered(m, row, given)
    if row.tags & {"makes-group", "shards-data"}:
        listed = next((bound.given[name] for name in _LISTED if name in bound.given), None)
        event.members = [containers.exact_items(m, one(atom)) for atom in ordered(listed.atoms)] if listed else []
    elif "collective" in row.tags:
        event.entries = _entries(m, row, given)
    if row.tags & _WRAPS:
        _note_wrapped(m, event, given)
    elif row.tags & _DRAWS:
        event.drawn = seeds.drawn(m, row, bound)
    elif "loads" in row.tags:
        event.modules = modules_in(m, (result,))
    _note_sizes(m, event, row, base, given)
    if "forward" in row.tags and not row.tags & WRAPPERS:
        gradients.note_run(m, base)
    elif "parameters" in row.tags:
        gradients.note_parameters(m, base, result)
        models = ordered(base.atoms) if base is not None else ()
        event.inside = {atom: modules_in(m, (one(atom),)) for atom in models if isinstance(atom, Instance)}
    if "parses-arguments" in row.tags:
        event.command_line = commandlines.read(m, row, bound, base)
    _note_items(m, row, bound, event)
    m.events.append(event)
    if m.program.focus is not None:
        m.program.focus.happened(m, event)


def _note_sizes(m: Machine, event: Event, row: Row, base: Value | None, given: dict[str, Value]) -> None:
    """Keep what a config that a call gets says of its batches, and the ZeRO stage that the call is told."""
    if "config" in row.extra:
        configured(m, event, row.extra)
        event.accumulation = accumulation_of(m, event.config)
        event.micro_batch = micro_batch_of(m, event.config)
    elif "micro_batches" in row.extra:
        event.accumulation = stated(m, row.extra["micro_batches"], given)
    if "stage" in row.extra:
        receiver = {"self": base} if base is not None else {}
        event.stage = named_stage(m, row.extra["stage"], {**given, **receiver})


def _note_items(m: Machine, row: Row, bound: BoundArguments, event: Event) -> None:
    """Keep paths, where the items of a loader come from, and by what parts of one whole for all differ."""
    whole = event.arguments.get("dataset")
    if "path" in row.extra:
        event.paths = paths.each(m, event.arguments.get(str(row.extra["path"])))
    if row.tags & {"makes-loader", "makes-distributed-sampler"}:
        event.sources, event.samplers = loader_sources(m, event.arguments), loader_samplers(m, event.arguments)
        event.held = makers_held(m, whole)
    elif "deals_out" in row.extra:
        event.sources = trainer_sources(m, event.arguments, row.extra["deals_out"])
    if "draws-parts" in row.tags and not varies_within(m, whole) & (RANKED | OWN_FILE | LOST):
        event.drawn = seeds.drawn(m, row, bound)


def _held(m: Machine, value: Value, node: ast.AST) -> list[Value]:
    """Return what an argument holds that the call iterates over: a generator of the project runs here."""
    found = containers.held(m, value)
    for atom in ordered(value.atoms):
        if isinstance(atom, Instance) and atom in m.generators:
            item = yielded(m, atom, node)
            found += [item, *containers.held(m, item)]
    return found


def _entries(m: Machine, row: Row, given: dict[str, Value]) -> list[int | None]:
    """Return how long the list that takes in the parts of all ranks may be; nothing where a call has none."""
    room = given.get(room_of(row.extra))
    atoms = ordered(room.atoms) if room is not None else []
    return [containers.entries_of(m, atom) for atom in atoms if not isinstance(atom, Const)]


def room_of(extra: Mapping[str, Any]) -> str:
    """Return the parameter that takes in the parts of all ranks; empty where a call has none."""
    return str(extra.get("room") or extra.get("root_only") or "")


def _note_wrapped(m: Machine, event: Event, given: dict[str, Value]) -> None:
    """Note the models that a call wraps, what each rank has of its own in them, and the modules inside."""
    event.parts = [part for value in given.values() for part in own_parts(m, value)]
    event.modules = modules_in(m, given.values())
    if "prepares" in event.tags:
        models = [atom for value in given.values() for atom in value.atoms if atom in event.modules]
        event.inside = {atom: modules_in(m, (one(atom),)) for atom in models if isinstance(atom, Instance)}
    event.drawn = seeds.drawn_weights(m, event.modules)


# Classes of models that are wrapped for several ranks.
_WRAPPED = ("ddp", "fsdp", "engine", "accelerate.PreparedModel")


def handed_event(m: Machine, path: str, arguments: Arguments, node: ast.AST) -> None:
    """Add the event of a call of a library that nobody has a row for, and that gets a wrapped model by a name."""
    given = {name: value for name, value in arguments.keywords.items() if _is_wrapped(m, value)}
    if given:
        nodes = {name: arguments.nodes[name] for name in given if name in arguments.nodes}
        event = Event(path, frozenset((HANDED,)), node, m.frame.module, None, given, None, m.lanes, m.control)
        event.nodes = nodes
        m.events.append(event)


def _is_wrapped(m: Machine, value: Value) -> bool:
    atoms = [atom.cls if isinstance(atom, Instance) else "" for atom in value.atoms]
    return bool(atoms) and all(isinstance(cls, str) and cls and is_instance_of(m, cls, *_WRAPPED) for cls in atoms)


def is_noted_early(m: Machine, row: Row) -> bool:
    """Return whether the event of a call comes before what it gives is made: it may be all that is asked for."""
    focus = m.program.focus
    return focus is not None and not focus.question.results and "parses-arguments" in row.tags
