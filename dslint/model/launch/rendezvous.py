"""What torchrun is told of the rendezvous, option by option, and whether all nodes can meet there.

``meeting.py`` reads the options and their ``PET_*`` variables, and says for every launcher where its processes meet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dslint.core.fact import Fact, known
from dslint.core.source import Location
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.meeting import is_switched_on, torchrun_option

_LOOPBACK = re.compile(r"""["']?(localhost|127\.\d+\.\d+\.\d+|\[?::1\]?)(?=$|[:"'])""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How torchrun meets the other nodes (torch ``distributed/run.py``, ``config_from_args``).

    ``backend`` is ``static`` unless somebody says otherwise. ``node_rank`` and ``master_addr`` take effect with it
    alone, the address only without an ``endpoint``. A rendezvous that ``is_standalone`` replaces backend and end point
    by its own; ``standalone`` is the option, where an option says so and no variable.
    """

    backend: Fact[str]
    endpoint: Fact[str]
    node_rank: Fact[str]
    master_addr: Fact[str]
    standalone: Flag | None
    host: Flag | None
    is_standalone: bool

    @property
    def is_static(self) -> bool:
        """The backend is the one that needs a node rank."""
        return self.backend.get_or("") == "static"

    @property
    def meets_at_loopback(self) -> bool:
        """The address that every node is given names the node itself."""
        word = self.host.value if self.host is not None else None
        return word is not None and _LOOPBACK.match(word.raw if word.text is None else word.text) is not None


def rendezvous(command: LaunchCommand) -> Rendezvous | None:
    """The rendezvous of a torchrun command; ``None`` for other launchers, and when options may be hidden."""
    if command.launcher != "torchrun" or command.hides_options:
        return None
    endpoint = torchrun_option(command, "--rdzv_endpoint")
    backend = torchrun_option(command, "--rdzv_backend").or_else(known("static"))
    static = backend.get_or("") == "static"
    host = command.launcher_flag("--rdzv_endpoint")
    if host is None and static:
        host = command.launcher_flag("--master_addr")
    return Rendezvous(
        backend,
        endpoint,
        torchrun_option(command, "--node_rank"),
        torchrun_option(command, "--master_addr"),
        command.launcher_flag("--standalone"),
        host,
        is_switched_on(torchrun_option(command, "--standalone")),
    )


def owners_of_loopback(commands: Sequence[LaunchCommand]) -> frozenset[int]:
    """The commands, by their number, that are node 0 at the loopback: other nodes there are agents on one machine."""
    found = set()
    for number, command in enumerate(commands):
        how = rendezvous(command)
        if how is None or command.nodes.get_or(1) < 2 or command.outer or how.is_standalone:
            continue
        if any(words and words[0].text in ("ssh", "rsh") for words in command.wrappers):
            continue  # the loopback of another machine
        at_loopback = how.meets_at_loopback or (how.is_static and how.host is None)
        if at_loopback and (not how.is_static or how.node_rank.get_or("") == "0"):
            found.add(number)
    return frozenset(found)


def places(command: LaunchCommand, *names: str) -> tuple[Location, ...]:
    """Where these launcher options stand, each with its text as label, and where their values come from."""
    found: list[Location] = []
    for name in names:
        flag = command.launcher_flag(name)
        if flag is None:
            continue
        value = flag.value
        text = (value.text if value.text is not None else value.raw) if value is not None else ""
        found.append(flag.location.labelled(f"{flag.name} {text}".strip()))
        for origin in value.origins if value is not None else ():
            place = origin if origin.label else origin.labelled("its value")
            found += [place] if place not in found else []
    return tuple(found)
