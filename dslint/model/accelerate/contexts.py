"""What is known around a config of ``accelerate launch``: flags of its commands, the DeepSpeed config it names."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand, canonical
from dslint.model.launch.meeting import launcher_is_open
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

if TYPE_CHECKING:
    from dslint.model.plan.runplan import RunPlan

# What the plugin of accelerate reads and no flag or file sets, and the devices that a command shows.
_VARIABLES = (
    *(f"ACCELERATE_DEEPSPEED_OFFLOAD_{what}_NVME_PATH" for what in ("OPTIMIZER", "PARAM")),
    "CUDA_VISIBLE_DEVICES",
)
_CONFIG_FILE = "/deepspeed_config/deepspeed_config_file"


def accelerate_contexts(
    docs: Sequence[DataDoc], plans: Sequence[RunPlan], base_of: Callable[[str], Context], workspace: Workspace
) -> dict[str, Context]:
    """The context of every file, by user-facing path.

    A flag is known only when all commands that name the file agree on it. Commands in documentation count only where
    no real launch file names it.
    """
    users: dict[str, list[RunPlan]] = {}
    for plan in plans:
        if plan.accelerate is not None:
            users.setdefault(plan.accelerate.path, []).append(plan)
    found = {}
    for doc in docs:
        runs = users.get(doc.path, [])
        runs = [plan for plan in runs if not plan.command.in_docs] or runs
        config = _agreed_config(runs) if runs else _config_beside(doc, workspace)
        found[doc.path] = replace(base_of(doc.path), arguments=_flags([plan.command for plan in runs]), config=config)
    return found


def run_facts(doc: DataDoc, context: Context) -> dict[str, str | int]:
    """The flags that every command of the file passes, for the experiments: ``flags``, a JSON list of words."""
    del doc
    words: list[str] = []
    for name, fact in context.arguments.items():
        if fact.is_known and name != "config_file" and not name.startswith("$"):
            words += [f"--{name}"] if fact.get() == "true" else [f"--{name}", fact.get()]
    return {"flags": json.dumps(words)}


def command_flags(command: LaunchCommand) -> dict[str, Fact[str]]:
    """What one command passes; the entry ``""`` stands for flags that its unreadable words may hold."""
    found = _passed(command)
    return found | {"": unknown("words of the command cannot be read")} if _is_open(command) else found


def _flags(commands: Sequence[LaunchCommand]) -> dict[str, Fact[str]]:
    """The launcher's flags by destination, and variables by ``$NAME``; ``""`` stands for words that cannot be read."""
    passed = [command_flags(command) for command in commands]
    found: dict[str, Fact[str]] = {}
    for name in dict.fromkeys(name for flags in passed for name in flags):
        values = [flags.get(name, absent()) for flags in passed]
        same = all((v.state, v.value) == (values[0].state, values[0].value) for v in values)
        found[name] = values[0] if same else unknown("the runs of this file differ")
    return found


def _passed(command: LaunchCommand) -> dict[str, Fact[str]]:
    variables = {f"${name}": command.variable(name) for name in _VARIABLES}
    found = {name: fact for name, fact in variables.items() if not fact.is_absent}
    for flag in command.launcher_flags:
        name = canonical(flag.name).lstrip("-")
        if flag.value is None:
            found[name] = known("true", flag.location)
        elif flag.value.text is None:
            found[name] = unknown("the value of the flag cannot be read", flag.location)
        else:
            found[name] = known(flag.value.text, flag.location)
    return found


def _is_open(command: LaunchCommand) -> bool:
    """A word that stands for any number of words may hold a flag of the launcher."""
    return command.script is None or launcher_is_open(command)


def _agreed_config(runs: Sequence[RunPlan]) -> DataDoc | None:
    configs = {plan.config.path: plan.config for plan in runs if plan.config is not None}
    agreed = len(configs) == 1 and all(plan.config is not None for plan in runs)
    return next(iter(configs.values())) if agreed else None


def _config_beside(doc: DataDoc, workspace: Workspace) -> DataDoc | None:
    """The config that the file names, where one of the folders above the file holds it.

    The path counts from the folder where the command is started, which nobody writes down.
    """
    text = doc.get(_CONFIG_FILE)
    if not isinstance(text, str) or text.startswith(("~", "/")):
        return None
    found = {path for folder in workspace.bases(doc.path) if (path := workspace.resolve(text, [folder])) is not None}
    config = workspace.json(found.pop()) if len(found) == 1 else None
    return config if config is not None and isinstance(config.data, dict) and not config.problems else None
