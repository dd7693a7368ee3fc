"""A config of ``accelerate launch`` that the text of another launcher names, and that therefore nobody reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile
from dslint.model.deepspeed.detect import is_accelerate_config
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.submissions import submitted_as
from dslint.model.plan.asked import yaml_beside
from dslint.model.plan.files import Files
from dslint.model.plan.questions import ranks_question
from dslint.model.plan.scriptrun import near_sources, script_run
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

_PRECISIONS = ("fp16", "bf16", "fp8")
_TYPES = {"DEEPSPEED": "deepspeed_plugin", "FSDP": "fsdp_plugin", "MEGATRON_LM": "megatron_lm_plugin"}
# The plugins have had other names, and the script may read the file or set the variables by itself.
_READS_IT = re.compile(
    r"ACCELERATE_|\byaml\b|OmegaConf|load_config_from_file|\bsubprocess\b|notebook_launcher|os\.exec"
)


@dataclass(frozen=True, slots=True)
class UnreadSettings:
    """``lost`` are the pointers of what only the file says; ``location`` is the `Accelerator` that misses it."""

    doc: DataDoc
    lost: tuple[str, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class _Made:
    """What every `Accelerator` of a script is told by the script itself."""

    location: Location
    arguments: frozenset[str]


def unread_settings(command: LaunchCommand, script: str | None, files: Files) -> UnreadSettings | None:
    """What is lost because torchrun, or `srun` alone, starts a script for which the text names an accelerate config."""
    if script is None or command.launcher not in ("torchrun", "srun") or command.in_docs:
        return None
    names = yaml_beside(command, files)
    if not names or any(_says_more(name) for name in command.env):
        return None
    doc = _named(names, command, files)
    if doc is not None and any(map(_says_more, _handed(command.location.path, files.workspace))):
        return None
    made = files.workspace.memo("accelerator made", script, lambda text: _made(text, files.workspace)) if doc else None
    if doc is None or made is None:
        return None
    lost = tuple(_lost(doc, made))
    return UnreadSettings(doc, lost, made.location) if lost else None


def _says_more(variable: str) -> bool:
    return variable.startswith("ACCELERATE_") and variable != "ACCELERATE_CONFIG_FILE"


def _handed(path: str, workspace: Workspace) -> Iterator[str]:
    """The variables that a job finds because of the scripts that submit it."""
    from dslint.model.launch.document import locator

    for call in submitted_as(path, workspace, locator(workspace)):
        yield from (*call.inherited, *call.handed)


def _named(names: Sequence[str], command: LaunchCommand, files: Files) -> DataDoc | None:
    """The config that the text names outside of the words of the command: those go to the script."""
    given = {word.text for word in command.script_args} | {word.raw for word in command.script_args}
    for name in names:
        path = files.find(name) if not any(name in (text or "") for text in given) else None
        doc = files.workspace.yaml(path) if path is not None else None
        if doc is not None and is_accelerate_config(path or "", doc.data):
            return doc
    return None


def _lost(doc: DataDoc, made: _Made) -> list[str]:
    found = []
    kind = doc.get("/distributed_type")
    if isinstance(kind, str) and kind in _TYPES and not any("plugin" in name for name in made.arguments):
        found.append("/distributed_type")
    if doc.get("/mixed_precision") in _PRECISIONS and "mixed_precision" not in made.arguments:
        found.append("/mixed_precision")
    return found


def _made(source: SourceFile, workspace: Workspace) -> _Made | None:
    """What the `Accelerator` of a script is given; ``None`` without one, and where something else may say more."""
    if not source.path.endswith(".py"):
        return None
    texts = [found.text for found in near_sources(source, workspace)]
    if not any("Accelerator(" in text for text in texts) or any(map(_READS_IT.search, texts)):
        return None
    run = script_run(source.path, workspace, ranks_question())
    events = [event for event in run.events if event.api == "accelerate.Accelerator"] if run is not None else []
    if not events or any(event.open for event in events):
        return None
    names = frozenset(name for event in events for name in event.arguments)
    return _Made(events[0].module.location(events[0].node), names)
