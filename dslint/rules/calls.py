"""Commands of a launch text and of the scripts that it calls: which are certain, and where a finding points."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc


def started_by(doc: LaunchDoc) -> Iterator[LaunchCommand]:
    """The commands of the text, and those of called scripts that depend on no condition."""
    yield from doc.commands
    yield from (command for command in doc.called if not command.conditions)


def place_in_text(command: LaunchCommand) -> Location:
    """Where the text that is judged starts the command: at the call, where the command is in a called script."""
    return next(iter(command.called_from), command.location)


def place_in_script(command: LaunchCommand) -> tuple[Location, ...]:
    """The command itself where another file calls its script: a related place of what is told at the call."""
    if not command.called_from:
        return ()
    return (command.location.labelled("the launcher, in the script that is called"),)


def stated_processes(command: LaunchCommand) -> int | None:
    """The processes on a node that somebody states."""
    names = ("--nproc_per_node", "--num_gpus", "--num_processes", "-i", "--include")
    by_variable = command.launcher == "torchrun" and "PET_NPROC_PER_NODE" in command.env
    is_said = by_variable or command.launcher_flag(*names) is not None
    if command.launcher != "srun" and (command.hides_options or not is_said):
        return None
    return command.processes_per_node.get_or(None)
