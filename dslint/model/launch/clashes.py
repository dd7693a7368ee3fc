"""What two commands that run at the same time on one machine both take: a port, devices."""

from __future__ import annotations

from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.ports import default_port, ports

_Numbered = tuple[int, tuple[Location, ...]]
_Found = tuple[str, tuple[Location, ...], tuple[Location, ...]]


def port_numbers(command: LaunchCommand) -> list[int]:
    """The ports that a command takes."""
    return [number for number, _ in _numbered(command) or _default(command)]


def _numbered(command: LaunchCommand) -> list[_Numbered]:
    """The ports that a command states, with their places; one of 0 is free."""
    return [(port.number, (port.location,)) for port in ports(command) if port.number]


def shared_port(first: LaunchCommand, second: LaunchCommand) -> _Found | None:
    """A port that both take, in words, with its places."""
    ours, theirs = _numbered(first), _numbered(second)
    if first.launcher == second.launcher:
        ours, theirs = ours or _default(first), theirs or _default(second)
    for number, place in ours:
        for other, there in theirs:
            if number == other:
                return f"port {number}", place, there
    return None


def _default(command: LaunchCommand) -> list[_Numbered]:
    """The port that a launcher takes by itself; it stands nowhere."""
    found = default_port(command)
    return [(found[0], ())] if found is not None else []


def shared_devices(first: LaunchCommand, second: LaunchCommand) -> _Found | None:
    """GPUs that both are shown, in words, with their places."""
    one, two = first.variable("CUDA_VISIBLE_DEVICES"), second.variable("CUDA_VISIBLE_DEVICES")
    if any(c.launcher_flag("-i", "--include", "-e", "--exclude", "--gpu_ids") for c in (first, second)):
        return None
    if not one.is_known or not two.is_known:
        return None
    ids = {part.strip() for part in one.get().split(",")} & {part.strip() for part in two.get().split(",")}
    ids = {part for part in ids if part.isdecimal()}
    if not ids:
        return None
    named = f"GPU {', '.join(sorted(ids))}" if len(ids) == 1 else f"the GPUs {', '.join(sorted(ids))}"
    return named, one.origins[:1], two.origins[:1]
