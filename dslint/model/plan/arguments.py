"""The arguments that a run's script receives, and who reads its DeepSpeed config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location
from dslint.model.launch.command import Flag, LaunchCommand, canonical
from dslint.model.plan.hfargs import EXACT_DEFAULTS, HF_NAMES, fitting, is_flag, parse_value
from dslint.model.plan.recipe import NO_COMMAND, is_axolotl
from dslint.model.plan.users import OWN_RULES

if TYPE_CHECKING:
    from dslint.model.plan.config import ConfigChoice
    from dslint.model.plan.parser.options import Option
    from dslint.model.plan.scriptprofile import ScriptProfile

# Command-line tools around the Trainer of transformers that take its arguments by their own names.
_HF_TOOLS = {"swift", "llamafactory", "axolotl"}


def passed_arguments(command: LaunchCommand) -> dict[str, Fact[str]]:
    """The script's arguments as the command words them, by destination; a bare switch is ``True``."""
    passed: dict[str, Fact[str]] = {}
    for flag in command.script_flags:
        if not flag.name.startswith("--"):
            continue
        passed[canonical(flag.name)[2:]] = _text(flag)
    return passed


def run_consumer(command: LaunchCommand, profile: ScriptProfile | None, choice: ConfigChoice) -> Fact[str]:
    """``hf`` | ``deepspeed`` | ``accelerate``: who hands the config to DeepSpeed."""
    if command.launcher in (*_HF_TOOLS, NO_COMMAND) or is_axolotl(command):
        return known("hf")
    if command.launcher == "xtuner":
        return unknown(f"{command.launcher} {OWN_RULES}")
    stated = profile.consumer if profile is not None else absent()
    if stated.is_absent and _looks_like_trainer(command, choice):
        return known("hf")
    if stated.is_absent:
        return unknown("the script does not show who reads the config")
    if command.launcher == "accelerate" and stated.get_or("") == "deepspeed":
        return unknown("accelerate and the script both configure DeepSpeed")
    return stated


def _looks_like_trainer(command: LaunchCommand, choice: ConfigChoice) -> bool:
    """``--deepspeed FILE`` together with names that only ``TrainingArguments`` uses in this combination."""
    flag = command.script_flag("--deepspeed")
    if flag is None or flag.value is None or choice.named is None or choice.named.text != flag.value.text:
        return False
    needed = ("--output_dir", "--per_device_train_batch_size")
    typical = ("--save_strategy", "--save_steps", "--logging_steps", "--lr_scheduler_type", "--report_to")
    return all(command.script_flag(n) for n in needed) and any(command.script_flag(n) for n in typical)


def effective_arguments(
    command: LaunchCommand, profile: ScriptProfile | None, consumer: Fact[str], passed: Mapping[str, Fact[str]]
) -> dict[str, Fact[Any]]:
    """What the script will hold: a flag, else a default that is certain. Other names are not in the result.

    ``passed`` are the :func:`passed_arguments` of the command.
    """
    if consumer.get_or("") == "hf":
        return _training_arguments(command, profile)
    return _script_arguments(command, profile, passed)


def _script_arguments(
    command: LaunchCommand, profile: ScriptProfile | None, passed: Mapping[str, Fact[str]]
) -> dict[str, Fact[Any]]:
    arguments: dict[str, Fact[Any]] = {}
    declared = profile.options if profile is not None else {}
    for dest, argument in declared.items():
        if argument.default.is_known:
            arguments[dest] = unknown("the command may set it") if command.may_hide_flags() else argument.default
    for dest, fact in passed.items():
        arguments[dest] = _converted(fact, declared.get(dest))
    return arguments


def _training_arguments(command: LaunchCommand, profile: ScriptProfile | None) -> dict[str, Fact[Any]]:
    if profile is not None and profile.constructed.values and profile.parsed.kind == "":
        return _constructed(command, profile)
    arguments = default_arguments(command, profile)
    for flag in command.script_flags:
        name = canonical(flag.name)[2:] if flag.name.startswith("--") else ""
        if name in HF_NAMES:
            arguments[name] = _hf_value(name, flag)
        elif name.startswith("no_") and is_flag(name[3:]):
            arguments[name[3:]] = known(False, flag.location)
    if profile is not None:
        for name in profile.parsed.rewritten & arguments.keys():
            arguments[name] = unknown("the script assigns it after parsing")
    return arguments


def default_arguments(command: LaunchCommand, profile: ScriptProfile | None) -> dict[str, Fact[Any]]:
    """Defaults that are certain: the class is the one of transformers and every flag of the command is seen."""
    arguments: dict[str, Fact[Any]]
    if profile is None or profile.parsed.kind != "exact" or profile.is_open or command.may_hide_flags():
        arguments = dict.fromkeys(HF_NAMES, unknown("its default is not certain"))
        if not command.may_hide_flags():
            # No class is known to switch this search on by default.
            arguments["auto_find_batch_size"] = known(False)
        return arguments
    arguments = {name: known(value) for name, value in EXACT_DEFAULTS.items()}
    for name in (name for name in HF_NAMES if name in profile.options):
        default = profile.options[name].default
        arguments[name] = default if default.is_known else unknown("the script computes its default")
    # What `accelerate launch` says of precision and accumulation goes to its plugin, not into these arguments.
    return arguments


def _constructed(command: LaunchCommand, profile: ScriptProfile) -> dict[str, Fact[Any]]:
    """``TrainingArguments(...)`` called by the script: its keywords, else the default where it is certain."""
    is_certain = profile.constructed.kind == "exact" and "**" not in profile.constructed.values
    arguments: dict[str, Fact[Any]] = (
        {name: known(value) for name, value in EXACT_DEFAULTS.items()}
        if is_certain
        else dict.fromkeys(HF_NAMES, unknown("its default is not certain"))
    )
    if not is_certain and "**" not in profile.constructed.values:
        arguments["auto_find_batch_size"] = known(False)
    arguments.update({name: fact for name, fact in profile.constructed.values.items() if name in HF_NAMES})
    if profile.constructed.dests:
        own = _script_arguments(command, profile, passed_arguments(command))
        for name, dest in profile.constructed.dests.items():
            if name in HF_NAMES and dest in own and own[dest].is_known:
                arguments[name] = own[dest]
    return {name: fitting(name, fact) for name, fact in arguments.items()}


def _hf_value(name: str, flag: Flag) -> Fact[Any]:
    if flag.value is None:
        return known(True, flag.location) if is_flag(name) else unknown("the flag has no value", flag.location)
    if flag.value.text is None:
        return unknown(f"`{flag.value.raw}` is not known here", flag.location)
    value = parse_value(name, flag.value.text)
    return Fact(value.state, value.value, _places(flag), value.reason)


def _places(flag: Flag) -> tuple[Location, ...]:
    """Where an option stands, and the assignments that its value comes from."""
    origins = flag.value.origins if flag.value is not None else ()
    return (flag.location, *(o for o in origins if o != flag.location)) if origins else (flag.location,)


def _text(flag: Flag) -> Fact[str]:
    if flag.value is None:
        return known("True", flag.location)
    if flag.value.text is None:
        return unknown(f"`{flag.value.raw}` is not known here", flag.location)
    return known(flag.value.text, *_places(flag))


def _converted(fact: Fact[str], declared: Option | None) -> Fact[Any]:
    converters: Mapping[str, type] = {"int": int, "float": float}
    convert = converters.get(declared.type) if declared is not None else None
    if not fact.is_known or convert is None:
        return fact
    try:
        return fact.map(convert)
    except ValueError:
        return unknown(f"{fact.get()!r} is no {convert.__name__}", *fact.origins)
