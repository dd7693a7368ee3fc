"""Ports that a launch command hands to its launcher or to the processes it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location
from dslint.model.launch.command import Flag, LaunchCommand


@dataclass(frozen=True, slots=True)
class Port:
    """A port with a readable number. ``name`` is the option or variable; ``zero_is_free``: 0 means "any"."""

    name: str
    number: int
    location: Location
    related: tuple[Location, ...] = ()
    zero_is_free: bool = False


def ports(command: LaunchCommand) -> Iterator[Port]:
    """The ports that take effect: torchrun ignores ``--master_port`` with c10d or ``--standalone``."""
    launcher = command.launcher
    if launcher == "torchrun":
        backend = command.launcher_flag("--rdzv_backend")
        dynamic = backend is not None and (backend.value is None or backend.value.text != "static")
        if command.launcher_flag("--standalone") is None:
            yield from _endpoint(command.launcher_flag("--rdzv_endpoint"))
            if not dynamic and command.launcher_flag("--rdzv_endpoint") is None:
                port = command.launcher_flag("--master_port")
                yield from _flag(port) if port is not None else _variable(command, "PET_MASTER_PORT")
    elif launcher == "deepspeed":
        yield from _flag(command.launcher_flag("--master_port"))
    elif launcher == "accelerate":
        yield from _flag(command.launcher_flag("--main_process_port"), zero_is_free=True)
    elif launcher == "xtuner":
        yield from _variable(command, "PORT")
    elif launcher in ("swift", "llamafactory", "srun", "mpirun", "python"):
        yield from _variable(command, "MASTER_PORT")


def default_port(command: LaunchCommand) -> tuple[int, Location] | None:
    """The port that deepspeed takes by itself, and accelerate for several processes; with the command as its place."""
    by_itself = command.launcher == "deepspeed" or (
        command.launcher == "accelerate"
        and command.processes_per_node.get_or(0) > 1
        and command.launcher_flag("--config_file") is None
    )
    names = ("--master_port", "--main_process_port")
    given = command.launcher_flag(*names) is not None or command.may_hide_launcher_flags()
    return None if given or not by_itself else (29500, command.location)


def _flag(flag: Flag | None, zero_is_free: bool = False) -> Iterator[Port]:
    if flag is None or flag.value is None:
        return
    number = _number(flag.value.text)
    if number is not None:
        yield Port(flag.name, number, flag.value.location, flag.value.origins, zero_is_free)


def _endpoint(flag: Flag | None) -> Iterator[Port]:
    if flag is None or flag.value is None:
        return
    word = flag.value
    # Of a word whose beginning is not known, the tail is what stands behind its last colon.
    _, known, port = word.text.rpartition(":") if word.text is not None else ("", word.tail, word.tail)
    number = _number(port) if known else None
    if number is not None:
        yield Port(flag.name, number, flag.value.location, flag.value.origins, zero_is_free=True)


def _variable(command: LaunchCommand, name: str) -> Iterator[Port]:
    fact = command.variable(name)
    number = _number(fact.get()) if fact.is_known else None
    if number is not None and fact.origins:
        yield Port(name, number, fact.origins[0], fact.origins[1:])


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    body = text.removeprefix("-")
    return int(text) if body.isascii() and body.isdigit() and len(body) < 20 else None
