"""Processes that a script starts itself: ``torch.multiprocessing.spawn`` and its relatives."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.launchers.base import World, count, one, text_fact, world
from dslint.model.launch.launchers.counts import devices
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.questions import group_question
from dslint.model.plan.scriptrun import constant_of, option_of, place_of, script_run
from dslint.model.workspace import Workspace
from dslint.python.events import Event

_SPAWNS = re.compile(r"\b(?:spawn|start_processes|notebook_launcher)\b")
_DEVICES = ("torch.cuda.device_count", ())
_NODES = (
    "--nnodes",
    "--num_nodes",
    "--nodes",
    "--num_machines",
    "--world_size",
    "--node_rank",
    "--machine_rank",
    "--dist_url",
)


@dataclass(frozen=True, slots=True)
class Spawn:
    """The one call by which a script starts its processes on every path.

    ``number`` is known where the script writes it down; ``by_devices``: one for each GPU that it sees; ``argument``:
    the option of the script that says it (``--gpus``).
    """

    location: Location
    number: Fact[int]
    by_devices: bool = False
    argument: str = ""


def spawned(source: SourceFile, workspace: Workspace) -> Spawn | None:
    """How the script starts processes itself; ``None`` where it does not, or does so under a condition."""
    run = script_run(source.path, workspace, group_question()) if _SPAWNS.search(source.text) else None
    if run is None:
        return None
    libraries = run.analysis.machine.libraries
    found: dict[int, tuple[Event, str]] = {}
    for event in certain_events(run):
        row = libraries.function(event.api) if "spawns" in event.tags else None
        if row is not None and "processes" in row.extra:
            found[id(event.node)] = (event, str(row.extra["processes"]))
    return _read(*next(iter(found.values()))) if len(found) == 1 else None


def _read(event: Event, keyword: str) -> Spawn | None:
    if event.open:
        return None
    place = event.module.location(event.node)
    value = event.arguments.get(keyword)
    if value is None:  # one process for ``spawn``, all devices for ``notebook_launcher``
        return Spawn(place, unknown("the default of the function decides", place))
    here = place_of(event, keyword)
    if value.number == _DEVICES:
        return Spawn(place, unknown("one process for each visible GPU", here), by_devices=True)
    option = option_of(value)
    if option:
        return Spawn(place, unknown("an argument decides", here), argument=f"--{option}")
    number = constant_of(value)
    if type(number) is int and number > 0:
        return Spawn(place, known(number, here.labelled("processes of the script")))
    return Spawn(place, unknown("the script computes it", here))


def spawn_world(command: LaunchCommand, spawn: Spawn) -> World:
    """The processes of ``python SCRIPT`` with such a script; on how many nodes nobody says where arguments might."""
    number = spawn.number
    if spawn.by_devices:
        number = devices(command.env)
    elif spawn.argument:
        passed = count(text_fact(command.script_flag(spawn.argument)))
        number = passed if not passed.is_absent else number
    if command.may_hide_flags() or any(command.script_flag(name) is not None for name in _NODES):
        return World(absent(), number, unknown("arguments of the script may speak of several nodes"))
    return world(one(spawn.location, "one node: the script starts its processes here"), number)
