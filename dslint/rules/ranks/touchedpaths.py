"""What calls do to files and folders whose path is the same in several processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dslint.python.events import Event
from dslint.python.values import Const, Instance, PerRank, Value
from dslint.python.varies import DIVERGENT, HOST, LOST, UNMODELLED, UNSURE
from dslint.rules.ranks.everyrank import Arrival, row_of, written_as
from dslint.rules.runs import RunQuery


def does_to_path(found: Arrival, row: Mapping[str, Any]) -> str | None:
    """Return what a call that several processes make does to their path; `None` where nothing can go wrong."""
    event = found.event
    if "makes-folder" in event.tags:
        is_open = "exist_ok" in row and not is_stated(event, str(row["exist_ok"]), False)
        return None if is_open or row.get("always_exist_ok") or found.is_tried else "folder"
    if event.tags & {"removes", "moves-file"}:
        is_open = not is_stated(event, "ignore_errors", False) or not is_stated(event, "missing_ok", False)
        return None if is_open or found.is_tried else "remove" if "removes" in event.tags else "move"
    if "unpacks" in event.tags:
        asked = event.arguments.get("download")
        return "download" if asked is not None and asked.constants == (True,) and not found.is_tried else None
    if "fetches" in event.tags:
        return None if event.open or found.is_tried else "fetch"
    if "opens" in event.tags:
        mode = event.arguments.get(str(row.get("mode", "")))
        modes = mode.constants if mode is not None else None
        if not modes or not all(isinstance(m, str) and m[:1] in ("w", "x") for m in modes):
            return None
        if is_download(event):
            return None if found.is_tried else "fetch"
        return "write"
    # Libraries that take a function which writes, or are told which rank does, guard by themselves; tokenizers and
    # configurations are small and the same on all ranks.
    is_small = event.api.endswith(".save_pretrained") and "main" not in row and "trainer-save" not in event.tags
    is_guarded = "downloads" in event.tags or "save_function" in event.arguments or event.open or is_small
    mode = event.arguments.get(str(row.get("mode", "")))
    is_guarded = is_guarded or _copies_the_same(event, str(row.get("copies", "")))
    is_added = bool(row.get("appends")) if mode is None else mode.constants != ("w",)
    return None if is_guarded or is_added or not is_stated(event, str(row.get("main", "")), True) else "write"


def is_download(event: Event) -> bool:
    """The file that is opened gets what the same function fetches from the net."""
    scope = event.module.function(event.node) or event.module.statement(event.node)
    return _FETCHES.search(event.module.text(scope)) is not None


def _copies_the_same(event: Event, source: str) -> bool:
    """`shutil.copy(args.config, folder)`: whoever is the last, and who writes at the same time, writes the same."""
    return source in event.arguments and not event.snapshot[source][0] & (DIVERGENT | LOST)


def is_stated(event: Event, name: str, default: bool) -> bool:
    """The argument is not given, or certainly has its default."""
    return name not in event.arguments or event.arguments[name].constants == (default,)


_FETCHES = re.compile(r"\burlopen\(|\brequests\.(?:get|Session)\(|\biter_content\(|\.get\([^()]*\bstream=True")
# Names by which scripts tell their processes apart, whatever the reader knows of their values.
_OWN = re.compile(r"(?i)rank|shard|worker|pid|uuid|mkdtemp|tempfile|tmp_path|tmpdir|proc(?:ess)?_?(?:id|index|num)")


def path_of(event: Event, parameter: str) -> Value | None:
    """Return the path that a call gets."""
    return event.receiver if parameter == "self" else event.arguments.get(parameter)


def shared_listings(run: RunQuery) -> frozenset[int]:
    """Return the calls that list a folder whose path is the same on all ranks: what they find, all ranks find."""
    found: set[int] = set()
    for event in (happening.event for happening in run.happenings("reads-file")):
        name = str(row_of(run, event).get("path", ""))
        value = event.receiver if name == "self" else event.arguments.get(name)
        bits = event.snapshot.get(name, (value.varies if value is not None else LOST, 0, frozenset()))[0]
        if event.result is not None and _is_many(event.result) and not bits & (DIVERGENT | LOST | UNSURE & ~UNMODELLED):
            found.add(id(event.node))
    return frozenset(found)


def _is_listed(run: RunQuery, path: Value, listings: frozenset[int]) -> bool:
    """Return whether a path is one of those that a listing gives."""
    origin, atom = run.machine.origin(path), path.single
    return (origin is not None and id(origin[1]) in listings) or (
        isinstance(atom, Instance) and id(atom.node) in listings
    )


def _is_many(value: Value) -> bool:
    """Return whether a call gives a list or an iterator."""
    kinds = ("builtins.list", "builtins.iterator", "builtins.generator")
    return bool(value.atoms) and all(isinstance(atom, Instance) and atom.cls in kinds for atom in value.atoms)


def is_shared_path(run: RunQuery, event: Event, parameter: str, listings: frozenset[int]) -> bool:
    """The path is a text or a `Path`, and certainly the same on all ranks, or one of those that a listing gives."""
    path = path_of(event, parameter)
    if path is None:
        return False
    bits = event.snapshot[parameter][0]
    if bits & HOST and _is_listed(run, path, listings):
        bits &= ~HOST
    if bits & (DIVERGENT | LOST | UNSURE & ~UNMODELLED):
        return False
    if any(_OWN.search(text) for text in written_as(event, event.nodes.get(parameter))):
        return False
    return all(
        atom.cls in ("pathlib.Path", "builtins.str", "")
        if isinstance(atom, Instance)
        else not isinstance(atom, PerRank) and (not isinstance(atom, Const) or isinstance(atom.value, str))
        for atom in path.atoms
    )
