"""The config file that reaches DeepSpeed by fields, dictionaries and functions of other files, as the runs read it."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from dslint.core.source import Location
from dslint.model.plan.configarg import SUFFIXES
from dslint.model.plan.questions import ENGINE
from dslint.model.plan.scriptrun import imported_sources, interpreted
from dslint.python.events import Event
from dslint.python.values import Const, Instance, Value

if TYPE_CHECKING:
    from dslint.model.plan.runplan import RunPlan
    from dslint.model.workspace import Workspace
    from dslint.python.launches import Launch

_LAUNCHERS = ("deepspeed", "torchrun", "accelerate")
_MOST_MODULES = 60
# A part of a config is written by the program: what the file says is not what DeepSpeed reads.
_WRITES = re.compile(
    r"\[\s*[\"'](?:train_|gradient_|zero_opt|optimizer|scheduler|fp16|bf16)[^\n]*\]\s*=[^=]|\.update\("
)


def config_path(plan: RunPlan, workspace: Workspace) -> tuple[str, Location] | None:
    """The path of the only file that a run opens for the engine that it makes, with the place of the engine.

    `None` where the script does not lead to an engine soon, and where several files could be the config.
    """
    script = plan.script
    if plan.profile is not None and plan.profile.opens_config is False:
        return None
    if script is None or plan.command.launcher not in _LAUNCHERS or plan.command.in_docs:
        return None
    folder = posixpath.dirname(script)
    near = (s for s in imported_sources(script, workspace, 1, _MOST_MODULES) if s.path.startswith(folder))
    if not any(ENGINE in source.text for source in near):
        return None
    from dslint.model.plan.launches import launches_of

    launches = launches_of((plan,))
    return _opened(script, workspace, launches[0]) if launches else None


def _opened(script: str, workspace: Workspace, launch: Launch) -> tuple[str, Location] | None:
    run = interpreted(script, workspace, launch)
    found = run.events if run is not None else []
    engines = [event for event in found if "makes-engine" in event.tags and not event.may]
    if len({id(event.node) for event in engines}) != 1 or not is_read(engines[0].config):
        return None
    config = engines[0].config
    before = found[: found.index(engines[0])]
    paths = {text for event in before for text in _paths(event)} if _path(config) is None else {_path(config)}
    modules = (engines[0].module, *(event.module for event in before if any(_paths(event))))
    text = paths.pop() if len(paths) == 1 else None
    if text is None or any(_WRITES.search(module.source.text) for module in modules if _path(config) is None):
        return None
    return text, engines[0].module.location(engines[0].node)


def is_read(config: Value | None) -> bool:
    """Return whether a config is a path, or something of which nobody knows the content: no dictionary of a program."""
    atom = config.single if config is not None else None
    return atom is not None and not (isinstance(atom, Instance) and atom.cls == "builtins.dict")


def _paths(event: Event) -> list[str]:
    """The JSON files that a call opens for reading."""
    if not event.tags & {"opens", "reads-file"}:
        return []
    found = (_path(event.arguments.get(name)) for name in ("file", "path", "filename"))
    return [text for text in found if text is not None]


def _path(value: Value | None) -> str | None:
    atom = value.single if value is not None else None
    text = atom.value if isinstance(atom, Const) and isinstance(atom.value, str) else None
    return text if text is not None and text.endswith(SUFFIXES) else None
