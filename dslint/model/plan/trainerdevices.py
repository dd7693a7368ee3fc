"""How many devices a script asks its Trainer of Lightning for, on each machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dslint.core.fact import Fact, absent, known
from dslint.core.source import Location, SourceFile
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.questions import ranks_question
from dslint.model.plan.scriptrun import constant_of, option_of, place_of, script_run
from dslint.model.workspace import Workspace
from dslint.python.events import Event

_LIBRARIES = ("lightning", "pytorch_lightning")
_WORDS = re.compile(r"lightning\b[\s\S]*\bdevices\s*=")


@dataclass(frozen=True, slots=True)
class TrainerDevices:
    """``devices`` of the one Trainer: a number that stands there, or the option of the command line that decides."""

    number: int | None
    option: str
    location: Location


def is_trainer(event: Event) -> bool:
    """The call makes a Trainer of Lightning."""
    return "trainer" in event.tags and event.api.partition(".")[0] in _LIBRARIES


def trainer_devices(source: SourceFile, workspace: Workspace) -> TrainerDevices | None:
    """What the script writes, where it makes one Trainer on its main path and leaves its environment to Lightning."""
    if not source.path.endswith(".py") or not _WORDS.search(source.text):
        return None
    run = script_run(source.path, workspace, ranks_question())
    made = [event for event in run.events if is_trainer(event)] if run is not None else []
    if run is None or len({event.node for event in made}) != 1:
        return None
    event = made[0]
    if event.open or event.may or "plugins" in event.arguments or event.node not in {
        certain.node for certain in certain_events(run)
    }:  # fmt: skip
        return None
    value = event.arguments.get("devices")
    number, option = constant_of(value), option_of(value)
    if not option and (type(number) is not int or number < 1):
        return None
    return TrainerDevices(number if type(number) is int else None, option, place_of(event, "devices"))


def devices_asked(found: TrainerDevices | None, given: Mapping[str, Fact[Any]]) -> Fact[int]:
    """The number for a command whose options are ``given``; absent where nobody can say."""
    if found is None:
        return absent()
    if not found.option:
        return known(found.number, found.location) if found.number is not None else absent()
    fact = given.get(found.option)
    number = fact.get_or(None) if fact is not None else None
    if fact is None or not str(number).isdigit() or isinstance(number, bool) or int(str(number)) < 1:
        return absent()
    return known(int(str(number)), found.location, *fact.origins)
