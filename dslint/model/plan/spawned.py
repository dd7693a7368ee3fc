"""Processes that a script starts itself: ``torch.multiprocessing.spawn`` and its relatives."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.launchers.base import World, count, one, text_fact, world
from dslint.model.launch.launchers.counts import devices
from dslint.model.plan.groupmade import reached_calls
from dslint.model.plan.pyscript import PyScript, read_script

# What starts processes, the keyword that says how many, and the place of that argument (torch 2.13
# ``multiprocessing/spawn.py``; accelerate 1.15 ``launchers.py``).
_SPAWN = {
    "torch.multiprocessing.spawn": ("nprocs", 2),
    "torch.multiprocessing.spawn.spawn": ("nprocs", 2),
    "torch.multiprocessing.start_processes": ("nprocs", 2),
    "torch.multiprocessing.spawn.start_processes": ("nprocs", 2),
    "accelerate.notebook_launcher": ("num_processes", 2),
    "accelerate.launchers.notebook_launcher": ("num_processes", 2),
}
_SPAWNS = re.compile(r"\b(?:spawn|start_processes|notebook_launcher)\b")
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


def spawned(source: SourceFile) -> Spawn | None:
    """How the script starts processes itself; ``None`` where it does not, or does so under a condition."""
    if not _SPAWNS.search(source.text) or source.path.endswith(".ipynb"):
        return None
    script = read_script(source)
    if script.tree is None:
        return None
    functions = {n.name: n for n in script.tree.body if isinstance(n, ast.FunctionDef) and not n.decorator_list}
    calls = [c for c in reached_calls(script.tree.body, functions, 0) if script.qualified(c.func) in _SPAWN]
    if len(calls) != 1:
        return None
    around = [f for f in functions.values() if any(node is calls[0] for node in ast.walk(f))]
    return _read(script, calls[0], around[0] if around else None)


def _value(script: PyScript, node: ast.expr, function: ast.FunctionDef | None) -> ast.expr:
    """What a name stands for that the function around sets once, or the file."""
    if function is not None and isinstance(node, ast.Name):
        stores = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == node.id and _is_store(n)]
        sets = [
            n.value
            for n in ast.walk(function)
            if isinstance(n, ast.Assign) and len(n.targets) == 1 and n.targets[0] in stores
        ]
        if stores:
            return sets[0] if len(stores) == len(sets) == 1 else node
    return script.resolved(node)


def _is_store(name: ast.Name) -> bool:
    return not isinstance(name.ctx, ast.Load)


def _read(script: PyScript, call: ast.Call, function: ast.FunctionDef | None) -> Spawn | None:
    keyword, position = _SPAWN[script.qualified(call.func)]
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    named = next((k.value for k in call.keywords if k.arg == keyword), None)
    value = named or (call.args[position] if len(call.args) > position else None)
    place = script.location(call)
    if value is None:  # one process for ``spawn``, all devices for ``notebook_launcher``
        return Spawn(place, unknown("the default of the function decides", place))
    node = _value(script, value, function)
    if isinstance(node, ast.Call) and script.qualified(node.func) == "torch.cuda.device_count":
        return Spawn(place, unknown("one process for each visible GPU", script.location(value)), by_devices=True)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return Spawn(place, unknown("an argument decides", script.location(value)), argument=f"--{node.attr}")
    literal = script.literal(node, "processes of the script")
    number = literal.value
    if literal.is_known and isinstance(number, int) and not isinstance(number, bool) and number > 0:
        return Spawn(place, known(number, *literal.origins))
    return Spawn(place, unknown("the script computes it", script.location(value)))


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
