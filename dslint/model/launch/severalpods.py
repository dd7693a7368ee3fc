"""What a manifest of several pods tells each of them, and what a script that they run looks for instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import kept

# They start one node unless a word or a variable that they read says otherwise.
_ALONE = ("torchrun", "swift", "llamafactory", "xtuner")
_OF_OTHERS = ("MASTER_ADDR", "WORLD_SIZE", "NNODES", "NUM_NODES", "PET_NNODES", "PET_MASTER_ADDR")
_COUNTS = re.compile(r"(?:N|NUM_?|N_)?NODES?(?:_?(?:COUNT|NUM))?|NUM_?MACHINES|NODE_?(?:COUNT|NUM)|WORLD_SIZE", re.I)
_MANY = re.compile(r"[2-9]|[1-9]\d+")
_LOOPBACK = re.compile(r"localhost|127\..*|::1|0\.0\.0\.0|")


def speaks_of_others(doc: LaunchDoc, command: LaunchCommand) -> tuple[str, Location] | None:
    """A variable by which a manifest tells its pods that they are several, for a command that starts one node."""
    if command.launcher not in _ALONE:
        return None
    for name in _OF_OTHERS:
        fact = command.env.get(name)
        place = next((o for o in fact.origins if o.path == doc.source.path), None) if fact is not None else None
        if fact is None or not fact.is_known or place is None:
            continue
        is_told = not _LOOPBACK.fullmatch(fact.get()) if name.endswith("ADDR") else _MANY.fullmatch(fact.get())
        if is_told:
            return name, place.labelled(f"{name}={fact.get()}")
    return None


def fallbacks(command: LaunchCommand) -> Iterator[Location]:
    """Where the script that is called takes one node, since it looks for a number under another name."""
    for name, place in kept(command):
        if _COUNTS.fullmatch(name):
            yield place.labelled(f"`{name}`: the job does not set it")
