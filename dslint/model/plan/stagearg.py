"""Which argument of a script is the ZeRO stage of the config that it makes."""

from __future__ import annotations

import re

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.config import ConfigChoice
from dslint.model.plan.parser.options import Passed, ScriptParser
from dslint.model.plan.questions import profile_question
from dslint.model.plan.scriptprofile import ScriptProfile
from dslint.model.plan.scriptrun import option_of, script_run
from dslint.model.workspace import Workspace
from dslint.python.events import Event

# ``--zero_stage``, ``--ds.zero_stage``: nothing else is called so.
_NAMED = ("zero_stage", "ds.zero_stage", "zero_optimization_stage")
_WORTH_READING = re.compile(r"\bstage|_stage")
_STAGE = "/zero_optimization/stage"
# What takes a stage beside a config: the plugin of accelerate, the strategy of Lightning.
_TAKES = frozenset({"configures", "group-options"})


def stage_argument(source: SourceFile, workspace: Workspace) -> str:
    """The destination that the script writes into the config that it makes, or hands on with it; else empty.

    Two of them (one for each model) are none.
    """
    is_near = "deepspeed" in source.text and _WORTH_READING.search(source.text) is not None
    run = script_run(source.path, workspace, profile_question()) if is_near else None
    found = {option for event in run.all_events for option in _stages(event)} if run is not None else set()
    return found.pop() if len(found) == 1 else ""


def _stages(event: Event) -> set[str]:
    """Return the options that are the ZeRO stage of the config that a call gets."""
    values = [event.settings.items.get(_STAGE)] if event.settings is not None else []
    if event.tags & _TAKES:
        values += [event.arguments.get(name) for name in ("stage", "zero_stage")]
    return {option_of(value) for value in values} - {""}


def stage_passed(parser: ScriptParser | None, given: Passed | None, argument: str) -> Fact[int]:
    """The stage that a command passes to its script; absent where the script has no such argument."""
    if parser is None or given is None:
        return absent()
    names = [argument] if argument else [n for n in _NAMED if any(o.dest == n for o in parser.options)]
    if not names or not any(option.dest == names[0] for option in parser.options):
        return absent()
    fact = given.values.get(names[0], unknown("the parser stops"))
    value = fact.value
    if fact.is_known and isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3:
        return known(value, *(place.labelled(f"ZeRO stage {value}") for place in fact.origins))
    return unknown("the stage that the command passes is not known", *fact.origins)


def run_stage(
    choice: ConfigChoice,
    command: LaunchCommand,
    words: tuple[ScriptParser | None, Passed | None],
    profile: ScriptProfile | None,
    workspace: Workspace,
) -> Fact[int]:
    """The ZeRO stage of a run: of its config, else what its command passes to the script that makes one.

    ``words`` are the parser of the script and what it makes of the command.
    """
    computed = choice.doc.is_embedded if choice.doc is not None else choice.named is None
    if computed and not choice.stage.is_known:
        path = profile.args_path if profile is not None else ""
        argument = workspace.memo("stage argument", path, lambda s: stage_argument(s, workspace)) or "" if path else ""
        stage = stage_passed(*words, argument)
        if not stage.is_absent and (argument or _uses_deepspeed(profile, command)):
            return stage
    if choice.stage.is_absent and (choice.path.is_unknown or command.may_hide_flags()):
        return unknown("the config of the run is not known")
    return choice.stage


def _uses_deepspeed(profile: ScriptProfile | None, command: LaunchCommand) -> bool:
    return command.launcher == "deepspeed" or (profile is not None and profile.consumer.get_or("") == "deepspeed")
