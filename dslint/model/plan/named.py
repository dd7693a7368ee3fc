"""What a launch command names: its script, its files, and what the parser of the script makes of its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dslint.core.fact import Fact
from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.console import console_scripts
from dslint.model.launch.launchers.adapters import TOOLS, program_name
from dslint.model.plan.arguments import default_arguments, effective_arguments
from dslint.model.plan.config import ConfigChoice, Named
from dslint.model.plan.files import Files
from dslint.model.plan.handedfiles import missing_files, similar
from dslint.model.plan.parser.accept import read_words
from dslint.model.plan.parser.options import Passed, ScriptParser
from dslint.model.plan.parser.reader import script_parser
from dslint.model.plan.readfields import filled_from_files
from dslint.model.plan.recipe import NO_COMMAND, Recipe, recipe_arguments
from dslint.model.plan.scriptprofile import ScriptProfile
from dslint.model.workspace import Workspace


def missing_of(command: LaunchCommand, files: Files, choice: ConfigChoice) -> tuple[Named, ...]:
    """The files that the command names and that are nowhere."""
    told = tuple(similar(named, files) for named in choice.missing)
    known_names = frozenset(named.text for named in told)
    return told if command.launcher == NO_COMMAND else (*told, *missing_files(command, files, known_names))


def words_of(
    command: LaunchCommand, script: str | None, workspace: Workspace
) -> tuple[ScriptParser | None, Passed | None]:
    """The parser of the script, and what it makes of the words of the command."""
    parser = script_parser(script, workspace) if script is not None and command.launcher != NO_COMMAND else None
    return read_words(parser, command) if parser is not None else (None, None)


def arguments_of(
    command: LaunchCommand,
    profile: ScriptProfile | None,
    found: Recipe | None,
    consumer: Fact[str],
    given: Passed | None,
    passed: Mapping[str, Fact[str]],
    files: Files,
) -> dict[str, Fact[Any]]:
    """Return the arguments that the script will have, by their names."""
    if found is not None:
        return recipe_arguments(command, found, default_arguments(command, profile))
    own = given.values if given is not None and consumer.get_or("") != "hf" else {}
    effective = effective_arguments(command, profile, consumer, passed)
    effective = filled_from_files(effective, profile, given.values if given is not None else {}, files)
    # What the parser makes of the words is better than a default, which an abbreviated option has replaced.
    return {**own, **{name: fact for name, fact in effective.items() if name in passed or name not in own}}


def is_plain(command: LaunchCommand) -> bool:
    """Return whether Python alone starts the script."""
    return command.launcher == "python" and not command.outer


def changes_config(profile: ScriptProfile | None, choice: ConfigChoice, named: tuple[str, Location] | None) -> bool:
    """The script changes the config; what it does to a dict of its own is known.

    Whether another module writes into the config that its engine opens (``named``), `config_path` has looked at.
    """
    if profile is None or (choice.doc is not None and choice.doc in profile.config_docs):
        return False
    return profile.changes_config and (named is None or named[1].path == profile.path)


def script_path(command: LaunchCommand, files: Files) -> str | None:
    """Return the path of the script that a command starts, where the project has it."""
    word = command.script
    if word is None:
        module = TOOLS.get(command.program)
        return files.find_module(module) if module is not None else None
    if command.is_module:
        return files.find_module(word.text) if word.text else None
    if word.text and word.text.endswith((".py", ".ipynb")):
        return files.find(word.text)
    module = console_scripts(files.launch_path, files.workspace).get(program_name(word))
    return files.find_module(module) if module is not None else None
