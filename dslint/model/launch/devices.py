"""The GPUs that a command names: ``CUDA_VISIBLE_DEVICES``, and the options of DeepSpeed's launcher beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.core.fact import Fact
from dslint.core.source import Location
from dslint.model.launch.command import Flag, LaunchCommand

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Visible:
    """A known list of devices. ``ids`` are numbers, or the names of devices (``GPU-...``, ``MIG-...``)."""

    text: str
    ids: tuple[str, ...]
    origins: tuple[Location, ...]

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The devices as numbers; ``None`` when they have names."""
        return tuple(map(int, self.ids)) if all(i.isdigit() for i in self.ids) else None


def visible_devices(command: LaunchCommand) -> Visible | None:
    """What ``CUDA_VISIBLE_DEVICES`` shows the command.

    ``None`` when it is not set, not known or empty (a run on CPUs), and when it is no list of distinct devices: CUDA
    stops at a negative number.
    """
    fact: Fact[str] = command.env[VISIBLE] if VISIBLE in command.env else command.variable(VISIBLE)
    if not fact.is_known:
        return None
    ids = tuple(part.strip() for part in fact.get().split(","))
    if not all(re.fullmatch(r"\d{1,3}|(?:GPU|MIG)-[\w/-]+", i) for i in ids) or len(set(ids)) != len(ids):
        return None
    first, *rest = fact.origins or (command.words[0].location,)
    return Visible(fact.get(), ids, (first.labelled(f"{VISIBLE}={fact.get()}"), *rest))


def number(flag: Flag | None) -> int | None:
    """The value of an option as a whole number; ``None`` when it is not given or not readable."""
    text = flag.value.text if flag is not None and flag.value is not None else None
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,6}", text.strip()) else None


def filters(command: LaunchCommand, *names: str) -> Flag | None:
    """``--include`` or ``--exclude`` with a value that is certain not to be empty."""
    flag = command.launcher_flag(*names)
    if flag is None or flag.value is None:
        return None
    given = flag.value.text if flag.value.text is not None else re.sub(r"^[\"']*\$.*|[\"']", "", flag.value.raw)
    return flag if given.strip() else None


def local_slots(flag: Flag | None) -> tuple[int, ...] | None:
    """The GPUs of ``--include localhost:0,1``; ``None`` for other hosts and for all GPUs of a host."""
    text = flag.value.text if flag is not None and flag.value is not None else None
    match = re.fullmatch(r"(?:localhost|127\.0\.0\.1):(\d+(?:,\d+)*)", text or "")
    return tuple(map(int, match[1].split(","))) if match else None
