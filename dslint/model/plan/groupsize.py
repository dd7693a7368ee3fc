"""The number of ranks for which a script makes its process group, where it is written out."""

from __future__ import annotations

import re

from dslint.core.fact import Fact, absent, known
from dslint.core.source import SourceFile
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.questions import group_question
from dslint.model.plan.scriptrun import constant_of, place_of, script_run
from dslint.model.workspace import Workspace

_WORTH_READING = re.compile(r"(?:init_process_group|init_distributed)\([^()]*world_size\s*=\s*\w")


def group_size(source: SourceFile, workspace: Workspace) -> Fact[int]:
    """``world_size=8`` of the one call that makes the group; absent where it is computed, conditional or not alone."""
    run = script_run(source.path, workspace, group_question()) if _WORTH_READING.search(source.text) else None
    if run is None:
        return absent()
    makers = [e for e in run.all_events if run.takes(e, "world_size") and "default-group" in e.tags]
    certain = {event.node for event in certain_events(run)}
    if len({event.node for event in makers}) != 1 or makers[0].node not in certain:
        return absent()
    event = makers[0]
    size = constant_of(event.arguments.get("world_size"))
    if type(size) is int and size > 1:
        return known(size, place_of(event, "world_size"))
    return absent()
