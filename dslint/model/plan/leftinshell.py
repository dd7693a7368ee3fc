"""Variables that a launch file sets for its script and that do not arrive: never exported, or kept back on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.environment import is_for_every_process, kept
from dslint.model.workspace import Workspace

# What these launchers put into the environment of each process, whatever the shell holds (torch/distributed/elastic,
# deepspeed/launcher/launch.py).
_GIVEN = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
_GIVING = frozenset({"torchrun", "deepspeed", "accelerate"})


def left_in_shell(command: LaunchCommand, reads: Set[str], workspace: Workspace) -> Iterator[tuple[str, Location]]:
    """The names that the script reads and the file neither exports nor uses itself, with the places of their values.

    And those that a program around it does not hand on: ``srun --export=NONE``, ``ssh``, ``sudo``, a container.
    """
    if command.in_docs or not reads:
        return
    given = _GIVEN if command.launcher in _GIVING else frozenset()
    asked = reads - given
    for name, fact in command.withheld.items():
        if name in asked - _GIVEN and fact.origins and not is_for_every_process(name) and not _named(command, name):
            yield name, fact.origins[0]
    wanted = [(name, place) for name, place in kept(command) if name in asked and not is_for_every_process(name)]
    source = workspace.read(command.location.path) if wanted else None
    for name, place in wanted:
        used = re.compile(
            rf"\$\{{?[#!]?{name}\b|\b{name}\b[^=\w]|\bset -\w*a|allexport|\bsource\b|^\s*\.\s", re.MULTILINE
        )
        is_here = source is not None and place.path == command.location.path
        if is_here and source is not None and used.search(source.text) is None:
            yield name, place


def _named(command: LaunchCommand, name: str) -> bool:
    """A word of the programs around speaks of the variable, or the command finds one of that name."""
    return name in command.env or any(name in word.raw for group in command.wrappers for word in group)
