"""Whether a script chooses how its model is wrapped itself, whatever ``accelerate launch`` is told."""

from __future__ import annotations

import re

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.scriptrun import near_sources
from dslint.model.workspace import Workspace

_CHOOSES = re.compile(
    r"FullyShardedDataParallel|\bfully_shard\b|DeepSpeedPlugin|MegatronLMPlugin|\b(?:fsdp|deepspeed|megatron_lm)_plugins?\b"
    r"|deepspeed\.initialize|ACCELERATE_USE_(?:FSDP|DEEPSPEED)|(?:training_args|TrainingArguments\()[^\n]*\bfsdp\b"
)


def chooses_strategy(command: LaunchCommand, script: str | None, workspace: Workspace) -> bool:
    """Ask the text of the script and of what it imports, where ``--multi_gpu`` decides for accelerate."""
    if script is None or command.launcher != "accelerate" or command.launcher_flag("--multi_gpu") is None:
        return False
    return bool(workspace.memo("own strategy", script, lambda source: _chooses(source, workspace)))


def _chooses(source: SourceFile, workspace: Workspace) -> bool:
    texts = near_sources(source, workspace) if source.path.endswith(".py") else [source]
    return any(_CHOOSES.search(found.text) for found in texts)
