"""The precision that a script hands to its ``Accelerator``: it wins over the one of the launch command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dslint.core.fact import Fact, absent, known
from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.questions import ACCELERATOR, ranks_question
from dslint.model.plan.scriptrun import constant_of, option_of, place_of, script_run
from dslint.model.workspace import Workspace

_ARGUMENT = "mixed_precision"


@dataclass(frozen=True, slots=True)
class HandedPrecision:
    """A text that stands there, or the option of the command line that decides."""

    text: str
    option: str
    location: Location


def own_precision(
    command: LaunchCommand, script: str | None, given: Mapping[str, Fact[Any]], workspace: Workspace
) -> Fact[str]:
    """What the ``Accelerator`` of a command gets, with its place first; absent where it gets nothing, or may."""
    if command.launcher != "accelerate" or script is None:
        return absent()
    found = workspace.memo("own precision", script, lambda source: _handed(source, workspace))
    if found is None:
        return absent()
    if not found.option:
        return known(found.text, found.location)
    fact = given.get(found.option)
    value = fact.get_or(None) if fact is not None else None
    return known(value, found.location, *fact.origins) if fact is not None and isinstance(value, str) else absent()


def _handed(source: SourceFile, workspace: Workspace) -> HandedPrecision | None:
    """What the script writes, where it certainly makes one ``Accelerator`` and hands it a precision."""
    if not source.path.endswith(".py"):
        return None
    run = script_run(source.path, workspace, ranks_question())
    made = [event for events in run.calls(ACCELERATOR) for event in events] if run is not None else []
    if run is None or len({event.node for event in made}) != 1:
        return None
    event = made[0]
    if event.open or event.may or event.node not in {certain.node for certain in certain_events(run)}:
        return None
    value = event.arguments.get(_ARGUMENT)
    text, option = constant_of(value), option_of(value)
    if not option and not isinstance(text, str):
        return None
    return HandedPrecision(text if isinstance(text, str) else "", option, place_of(event, _ARGUMENT))
