"""By what number the runs of a script choose a device: the calls that name one, and what they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.python.values import Api, Const, Instance, PerRank, Unknown, Value
from dslint.python.varies import ASSUMED, LOST

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.rules.runs import RunQuery

# Parameters that take a device, whatever the call is.
_PLACES = ("device", "device_id", "device_ids", "device_map", "map_location")
_NAMING = DEVICE_NAMING = frozenset({"sets-device", "uses-device", "moves-to-device"})
DEVICE_TAGS = (*sorted(_NAMING), "starts-group", "wraps-model", "loads", "reads-file", "spawns")
_TEXT = "builtins.str"
_NAME = re.compile(r"cuda:(\d+)")


def choices(event: Event) -> Iterator[tuple[Value, ast.AST]]:
    """Yield what an event may take for a device, each with the place where it is written; items of lists, too."""
    names = event.arguments if event.tags & _NAMING else [name for name in _PLACES if name in event.arguments]
    for name in names:
        if name != "self":
            node = written(event, name)
            yield from ((value, _item(event, name, node)) for value in event.items.get(name, []))
            yield event.arguments[name], node


def written(event: Event, name: str) -> ast.AST:
    """Return the code of an argument; of the call where it is unpacked."""
    call = event.node
    if name in event.nodes or not isinstance(call, ast.Call):
        return event.nodes.get(name, call)
    found: ast.AST | None = next((k.value for k in call.keywords if k.arg == name), None)
    if name.startswith("*") and name[1:].isdigit() and int(name[1:]) < len(call.args):
        found = call.args[int(name[1:])]
    return found or call


def _item(event: Event, name: str, node: ast.AST) -> ast.AST:
    """Return the code of the only item of a list or dictionary that the module of the event writes out, else `node`."""
    made = event.arguments[name].single
    inner = made.node if isinstance(made, Instance) else node
    items = inner.elts if isinstance(inner, ast.List) else inner.values if isinstance(inner, ast.Dict) else []
    if len(items) != 1 or not event.module.holds(inner):
        return node
    return items[0]


def is_rank_of_job(run: RunQuery, event: Event, value: Value) -> bool:
    """Return whether the number of a device is the rank in the whole job, on each rank that comes to the event."""
    if event.varies & LOST or value.varies & ASSUMED or not all(isinstance(a, PerRank | Const) for a in value.atoms):
        return False
    lanes = [lane for lane in range(run.machine.worlds.count) if event.lanes >> lane & 1]
    facts = run.machine.worlds.lanes
    if not any(facts[lane][0] != facts[lane][1] for lane in lanes):
        return False
    return any(
        isinstance(atom, PerRank) and all(_number(atom.values[lane]) == facts[lane][0] for lane in lanes)
        for atom in value.atoms
    )


def _number(value: object) -> object:
    """Return the number in the name of a device."""
    named = _NAME.fullmatch(value) if isinstance(value, str) else None
    return int(named[1]) if named is not None else value


def device_words(run: RunQuery, value: Value) -> frozenset[str] | None:
    """Return the devices that a value may name, as torch writes them (`cuda`, `cuda:0`); `None` when unknown."""
    found: set[str] = set()
    for atom in value.atoms:
        if isinstance(atom, Const) and type(atom.value) in (int, str):
            found.add(f"cuda:{atom.value}" if isinstance(atom.value, int) else str(atom.value))
            continue
        made = run.makers.get(atom) if isinstance(atom, Instance) else None
        names = device_words(run, made.arguments["0"]) if made is not None and "0" in made.arguments else None
        if made is None or made.api != "torch.device" or names is None or made.open:
            return None
        number = made.arguments.get("1")
        known = number.constants if number is not None else ()
        if known is None:
            return None
        found |= {f"{name}:{at}" for name in names for at in known} if number is not None else names
    return frozenset(found)


def is_bare_gpu(run: RunQuery, value: Value) -> bool:
    """Return whether a value may be the word `cuda` alone, and otherwise no GPU that is known."""
    words = device_words(run, value)
    if words is None and all(isinstance(a, Const) or (isinstance(a, Unknown) and a.type == _TEXT) for a in value.atoms):
        words = frozenset(str(atom.value) for atom in value.atoms if isinstance(atom, Const))
    return words is not None and "cuda" in words and words <= {"cuda", "cpu", "mps"}


def is_dtype(value: Value) -> bool:
    """Return whether an argument is a type of numbers, or a switch, and no device."""
    return all(
        (isinstance(atom, Api) and atom.path.startswith("torch."))
        or (isinstance(atom, Const) and type(atom.value) is bool)
        for atom in value.atoms
    )


def is_on_current(run: RunQuery, event: Event) -> bool:
    """Return whether a call puts something on the current GPU: `.cuda()`, `.to("cuda")`."""
    if "moves-to-device" not in event.tags or event.open:
        return False
    values = [value for value, _ in choices(event) if value.constants != (None,) and not is_dtype(value)]
    if not values:
        return event.api.endswith(".cuda")
    known = [device_words(run, value) or frozenset() for value in values]
    return any("cuda" in words and words <= {"cuda", "cpu", "mps"} for words in known)
