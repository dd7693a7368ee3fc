"""Runs whose arguments stand in a YAML or JSON file: ``llamafactory-cli train recipe.yaml key=value`` and its kin.

Such a file that names a DeepSpeed config is a run by itself, also where no launch command of the project uses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location
from dslint.model.launch.command import Flag, LaunchCommand, Word, canonical
from dslint.model.plan.files import Files
from dslint.model.plan.hfargs import HF_DEFAULTS, HF_NAMES, is_flag, parse_value
from dslint.model.plan.parser.options import ARGUMENT_FILES
from dslint.model.plan.scriptprofile import ScriptProfile, profile_of
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

# What axolotl calls the arguments of the Trainer (axolotl/core/builders/base.py and causal.py).
_AXOLOTL = {"per_device_train_batch_size": "micro_batch_size"}
_TOOLS = ("llamafactory", "swift", "axolotl")
# A script that hands a config to the arguments of a Trainer names the keyword, in a call or in a dictionary.
_BY_HAND = re.compile(r"\bdeepspeed\\?[\"']?\s*[=:]")
_PARSES_WORDS = re.compile(r"\.parse_(?:known_)?args(?:_into_dataclasses)?\(")
_PARSES_FILE = re.compile(r"\.parse_(?:yaml|json)_file\(")
# The launcher of a run that no command of the project starts.
NO_COMMAND = "recipe"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A file with the arguments of a Trainer.

    ``tool`` reads it: ``llamafactory`` | ``swift`` | ``axolotl`` | ``hf`` (HfArgumentParser, or a class that builds on
    ``TrainingArguments``).
    """

    doc: DataDoc
    tool: str


def recipe_of(doc: DataDoc) -> Recipe | None:
    """The recipe in a file that names or holds a DeepSpeed config, judged by its keys; ``None`` for any other file."""
    data = doc.data
    if not isinstance(data, dict) or doc.problems or not _gives_config(doc, data.get("deepspeed")):
        return None
    if "base_model" in data and ("micro_batch_size" in data or "datasets" in data):
        return Recipe(doc, "axolotl")
    shared = len(HF_NAMES & data.keys())
    if (
        ("finetuning_type" in data or "stage" in data)
        and ("template" in data or "model_name_or_path" in data)
        and shared
    ):
        return Recipe(doc, "llamafactory")
    is_trainer = "per_device_train_batch_size" in data or ("output_dir" in data and shared > 1)
    return Recipe(doc, "hf") if is_trainer else None


def _gives_config(doc: DataDoc, given: object) -> bool:
    """A path, or the config itself."""
    if isinstance(given, dict):
        from dslint.model.embedded.sections import section_at

        return section_at(doc, "/deepspeed", is_yaml=doc.path.endswith((".yaml", ".yml"))) is not None
    return isinstance(given, str)


def standalone(found: Recipe) -> LaunchCommand:
    """The run of a recipe that no command names: nobody says on how many ranks."""
    return LaunchCommand(NO_COMMAND, found.tool, found.doc.value("/deepspeed"), ())


def started_by_hand(path: str, workspace: Workspace) -> LaunchCommand | None:
    """The run of a script that no command names and that hands a config to ``TrainingArguments(...)`` itself."""
    source = workspace.read(path)
    profile = profile_of(path, workspace) if source is not None and _BY_HAND.search(source.text) else None
    if profile is None:
        return None
    named = profile.constructed.values.get("deepspeed")
    if named is None or not isinstance(named.value, str) or not named.value.endswith(".json"):
        return None
    place = named.origins[-1]
    # Nobody sees its command line.
    return LaunchCommand(
        NO_COMMAND, "script", place, (), script=Word(profile.path, profile.path, place), hides_words=True
    )


def recipe(
    command: LaunchCommand, files: Files, profile: ScriptProfile | None = None, script: str | None = None
) -> Recipe | None:
    """The file with the arguments of the Trainer, when the command or its script reads them from one."""
    tool = "axolotl" if is_axolotl(command) else command.launcher if command.launcher in _TOOLS else ""
    word = None
    if tool:
        word = next((w for w in command.words if w.text is not None and w.text.endswith(ARGUMENT_FILES)), None)
        if tool == "swift" and word not in command.script_args[:1]:
            word = None
    elif profile is not None and profile.parsed.kind:
        tool, word = "hf", _argument_file(command, profile)
    if word is None and script is not None and (profile is None or profile.parser is None):
        tool, word = tool or "hf", _only_file(command, script, files.workspace)
    path = files.find(word.text) if word is not None and word.text is not None else None
    doc = files.data(path) if path is not None else None
    if doc is None or not isinstance(doc.data, dict) or doc.problems:
        return None
    return Recipe(doc, tool)


def names_recipe(command: LaunchCommand) -> bool:
    """The script may read its arguments from a file: ``--config x.yaml``, ``train.py args.json``."""
    flag = command.script_flag("--config")
    words = (flag.value if flag is not None else None, *command.script_args[:1])
    return any(w is not None and (w.text or "").endswith(ARGUMENT_FILES) for w in words)


def is_axolotl(command: LaunchCommand) -> bool:
    """``axolotl train``, or a module of axolotl under another launcher."""
    module = command.script.text if command.script is not None else None
    return command.launcher == "axolotl" or (module or "").startswith("axolotl.cli")


def _argument_file(command: LaunchCommand, profile: ScriptProfile) -> Word | None:
    """The only operand of a script that reads a file of arguments, or what ``--config`` of a TrlParser names."""
    parser = profile.parser
    if parser is not None and parser.kind == "trl":
        flag = command.script_flag("--config")
        return flag.value if flag is not None else None
    if parser is None or not parser.reads_file:
        return None
    words = command.script_args[:1] if parser.takes_words_beside_file else command.script_args
    return words[0] if len(words) == 1 and (words[0].text or "").endswith(ARGUMENT_FILES) else None


def _only_file(command: LaunchCommand, script: str, workspace: Workspace) -> Word | None:
    """The one file of arguments among the words of a script that parses a file and never its command line."""
    words = [word for word in command.script_args if (word.text or "").endswith(ARGUMENT_FILES)]
    source = workspace.read(script) if len(words) == 1 else None
    if source is None or not _PARSES_FILE.search(source.text) or _PARSES_WORDS.search(source.text):
        return None
    return words[0]


def recipe_arguments(command: LaunchCommand, found: Recipe, defaults: Mapping[str, Fact[Any]]) -> dict[str, Fact[Any]]:
    """What the recipe states; what stands on the command line wins over it.

    ``defaults`` hold where the recipe is silent. Those of LLaMA-Factory are the ones of transformers
    (llamafactory/hparams/training_args.py); other tools have some of their own.
    """
    if found.tool == "llamafactory":
        defaults = {name: known(value) for name, value in HF_DEFAULTS.items()}
    overridden = _overrides(command)
    arguments: dict[str, Fact[Any]] = {}
    for name in HF_NAMES:
        key = _AXOLOTL.get(name, name) if found.tool == "axolotl" else name
        fact = found.doc.fact(f"/{key}")
        if key in overridden:
            arguments[name] = _stated(name, overridden[key])
        elif command.may_hide_flags():
            arguments[name] = unknown("the command line decides")
        elif fact.is_known:
            arguments[name] = _typed(name, fact)
        else:
            default = defaults.get(name, unknown("its default is not certain"))
            arguments[name] = default if fact.is_absent else fact
    return _axolotl(arguments, found.doc) if found.tool == "axolotl" else arguments


def _overrides(command: LaunchCommand) -> Mapping[str, Flag]:
    """``key=value`` words and ``--key value`` options."""
    given = {canonical(f.name)[2:]: f for f in command.script_flags if f.name.startswith("--")}
    for word in command.words:
        name, equals, text = word.raw.partition("=")
        if equals and name.isidentifier():
            value = None if word.text is None else word.text.partition("=")[2]
            given[name] = Flag(name, Word(value, text, word.location, word.origins), word.location)
    return given


def _stated(name: str, flag: Flag) -> Fact[Any]:
    if flag.value is None:
        return known(True, flag.location) if is_flag(name) else unknown("the option has no value", flag.location)
    if flag.value.text is None:
        return unknown("the command line decides", flag.location)
    value = parse_value(name, flag.value.text)
    return Fact(value.state, value.value, (flag.location,), value.reason)


def _axolotl(arguments: dict[str, Fact[Any]], doc: DataDoc) -> dict[str, Fact[Any]]:
    """``bf16: full`` is bf16, ``fp16`` counts only where bf16 is off, ``batch_size`` replaces accumulation steps."""
    if doc.get("/bf16") == "full":
        arguments["bf16"] = known(True, doc.value("/bf16"))
    elif not arguments["bf16"].get_or(False) and doc.get("/bfloat16"):
        arguments["bf16"] = unknown("`bfloat16` may switch it on", doc.value("/bfloat16"))
    if arguments["bf16"].get_or(True) and not (arguments["fp16"].is_known and not arguments["fp16"].get()):
        arguments["fp16"] = unknown("`bf16` decides")
    if arguments["warmup_steps"].get_or(0) == 1:
        arguments["warmup_steps"] = unknown("axolotl makes it 2", *arguments["warmup_steps"].origins)
    if doc.get("/batch_size") is not None:
        arguments["gradient_accumulation_steps"] = unknown("axolotl computes it from `batch_size`")
    return arguments


def _typed(name: str, fact: Fact[Any]) -> Fact[Any]:
    value = fact.get()
    if isinstance(value, str):
        parsed = parse_value(name, value)
        return Fact(parsed.state, parsed.value, fact.origins, parsed.reason)
    return known(value, *fact.origins) if isinstance(value, (int, float)) else unknown("not a number", *fact.origins)


def starts(command: LaunchCommand) -> Location:
    """The place that starts a run, with a label for findings."""
    label = "the arguments of this run" if command.launcher == NO_COMMAND else "the command that starts this run"
    return command.location.labelled(label)
