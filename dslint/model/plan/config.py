"""Which DeepSpeed config a launch command runs with."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location
from dslint.model.launch.command import Flag, LaunchCommand, Word
from dslint.model.plan.appearing import is_written, may_appear, writes
from dslint.model.plan.configarg import SUFFIXES
from dslint.model.plan.edited import is_edited
from dslint.model.plan.files import Files
from dslint.model.plan.leftbehind import LeftBehind, left_behind
from dslint.model.plan.recipe import NO_COMMAND, Recipe
from dslint.model.plan.scriptprofile import ScriptProfile
from dslint.parse.data import DataDoc

CONFIG_FLAGS = ("--deepspeed_config", "--ds_config", "--deepspeed", "--ds_config_path", "--deepspeed_config_file")
_CONFIG_DESTS = tuple(flag[2:] for flag in CONFIG_FLAGS)
# Presets of xtuner (``deepspeed_zero2_offload``) and ms-swift (``zero3``): the stage is in the name.
_PRESET = re.compile(r"(?:deepspeed_)?zero-?([0-3])(?:_\w+)?$")


@dataclass(frozen=True, slots=True)
class Named:
    """A config file as a command, YAML file or script names it. ``raw`` is the word before expansion.

    ``left``: the file is there, but not where the command looks for it after ``cd``. ``is_start``: the command starts
    now, and the file is not there. ``meant``: the file of the project that the name is most like, where it is nowhere.
    ``has_siblings``: its folder is in the project, with other files of its kind.
    """

    text: str
    location: Location
    raw: str = ""
    left: LeftBehind | None = None
    is_start: bool = False
    meant: str = ""
    has_siblings: bool = False

    def is_moved(self, document: str) -> bool:
        """Whether a document names a file by a folder where it is not, and it is elsewhere beside the document.

        A path that ends the one that is meant (`train.py` of `src/train.py`) may be right after a `cd` in words, but
        not where it differs in small and capital letters.
        """
        folder, tail = posixpath.dirname(document), "/" + self.text.removeprefix("./")
        meant = f"/{self.meant}"
        if meant.lower().endswith(tail.lower()):
            return bool(self.meant) and not meant.endswith(tail)
        is_same = posixpath.basename(self.text) == posixpath.basename(self.meant)
        return is_same and "/" in self.text and (not folder or self.meant.startswith(f"{folder}/"))


_MOST_SIBLINGS = 100


@dataclass(frozen=True, slots=True)
class ConfigChoice:
    """The config of a run: the file that names it, its path and data, or only its stage."""

    named: Named | None = None
    path: Fact[str] = field(default_factory=absent)
    doc: DataDoc | None = None
    stage: Fact[int] = field(default_factory=absent)
    # The accelerate YAML file; its ``deepspeed_config`` section may stand in for a config file.
    accelerate: DataDoc | None = None
    # Config files that the run names and that are nowhere.
    missing: tuple[Named, ...] = ()


def names_config(command: LaunchCommand) -> bool:
    """A flag of the command may choose a config or a ZeRO stage."""
    if command.script_flag(*CONFIG_FLAGS) is not None or any(_is_json(f.value) for f in command.script_flags):
        return True
    return command.launcher_flag("--config_file", "--use_deepspeed", "--zero_stage", *CONFIG_FLAGS) is not None


def _is_json(word: Word | None) -> bool:
    return word is not None and word.text is not None and word.text.endswith(SUFFIXES)


def choose_config(
    command: LaunchCommand, profile: ScriptProfile | None, files: Files, recipe: Recipe | None = None
) -> ConfigChoice:
    """The config that the launcher, a file of arguments, the script's flags or the script name, in this order."""
    found = _chosen(command, profile, files, recipe)
    # A run that no command starts may be meant for another folder.
    return replace(found, missing=()) if command.launcher == NO_COMMAND else found


def _chosen(command: LaunchCommand, profile: ScriptProfile | None, files: Files, recipe: Recipe | None) -> ConfigChoice:
    named = recipe.doc.get("/deepspeed") if recipe is not None else None
    if recipe is not None and isinstance(named, str) and command.script_flag("--deepspeed") is None:
        return _load(Named(named, recipe.doc.value("/deepspeed")), files)
    if recipe is not None and isinstance(named, dict) and command.script_flag("--deepspeed") is None:
        return _inside(recipe.doc)
    if command.launcher == "accelerate":
        choice = _from_accelerate(command, files)
        if choice is not None and not choice.path.is_absent:
            return choice
        rest = _from_script(command, profile, files)
        if choice is None:
            return rest
        is_silent = rest.path.is_absent and rest.stage.is_absent
        # The YAML file starts the processes also where the script names the config.
        return choice if is_silent else _replace(rest, choice.accelerate, choice.missing)
    return _from_script(command, profile, files)


def _inside(host: DataDoc) -> ConfigChoice:
    """The config that stands in the file of arguments itself."""
    from dslint.model.embedded.sections import section_at

    place = host.value("/deepspeed")
    doc = section_at(host, "/deepspeed", is_yaml=host.path.endswith((".yaml", ".yml")))
    if doc is None:
        return ConfigChoice(path=unknown("the section is no DeepSpeed config", place))
    return ConfigChoice(Named(doc.name, place), known(doc.name, place), doc, stage_of(doc))


def stage_of(doc: DataDoc) -> Fact[int]:
    """The ZeRO stage that a DeepSpeed config states; without a section ZeRO is off."""
    section = doc.get("/zero_optimization")
    if not isinstance(doc.data, dict) or isinstance(section, bool):
        return unknown("the section is no object")
    stage = doc.fact("/zero_optimization/stage", "ZeRO stage")
    if stage.is_absent:
        return known(0, *([doc.key("/zero_optimization")] if doc.has("/zero_optimization") else []))
    return _stage(stage)


def _stage(fact: Fact[Any]) -> Fact[int]:
    value = fact.value
    if fact.is_known and isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3:
        return known(value, *fact.origins)
    return fact if fact.is_absent else unknown("the stage is no number from 0 to 3", *fact.origins)


def _from_accelerate(command: LaunchCommand, files: Files) -> ConfigChoice | None:
    """``accelerate launch``: its own flags win over its YAML file."""
    yaml_flag = command.launcher_flag("--config_file")
    yaml_doc, missing = _accelerate_yaml(yaml_flag, files)
    flag = command.launcher_flag("--deepspeed_config_file")
    if flag is not None:
        return _replace(_load(_named(flag), files), yaml_doc, missing)
    if yaml_doc is not None and yaml_doc.has("/deepspeed_config/deepspeed_config_file"):
        pointer = "/deepspeed_config/deepspeed_config_file"
        text = yaml_doc.get(pointer)
        if isinstance(text, str) and text.lower() != "none":
            return _replace(_load(Named(text, yaml_doc.value(pointer)), files), yaml_doc, missing)
    stage = command.launcher_flag("--zero_stage")
    if stage is not None:
        text = stage.value.text if stage.value else None
        number = int(text) if text is not None and text.isdigit() else None
        fact: Fact[Any] = known(number, stage.location) if number is not None else unknown("the stage is not read")
        return ConfigChoice(stage=_stage(fact), accelerate=yaml_doc, missing=missing)
    if yaml_doc is not None and yaml_doc.get("/distributed_type") == "DEEPSPEED":
        inline = _stage(yaml_doc.fact("/deepspeed_config/zero_stage", "ZeRO stage"))
        return ConfigChoice(stage=inline, accelerate=yaml_doc, missing=missing)
    return ConfigChoice(accelerate=yaml_doc, missing=missing) if yaml_doc or missing else None


def _accelerate_yaml(flag: Flag | None, files: Files) -> tuple[DataDoc | None, tuple[Named, ...]]:
    named = _named(flag) if flag is not None else None
    if named is None or not named.text.endswith((".yaml", ".yml", ".json")):
        return None, ()
    path = files.find(named.text)
    if path is None:
        return None, _missing(named, files)
    if is_edited(path, files.command, files.workspace):
        return None, ()  # what the launcher reads is not what stands there
    return files.data(path), _left(named, files)


def _replace(choice: ConfigChoice, accelerate: DataDoc | None, missing: tuple[Named, ...]) -> ConfigChoice:
    return ConfigChoice(choice.named, choice.path, choice.doc, choice.stage, accelerate, (*missing, *choice.missing))


def _from_script(command: LaunchCommand, profile: ScriptProfile | None, files: Files) -> ConfigChoice:
    own = tuple(f"--{dest}" for dest in profile.config_dests) if profile is not None else ()
    for name in dict.fromkeys((*own, *CONFIG_FLAGS)):
        flag = command.script_flag(name)
        if flag is None or flag.value is None:
            continue
        choice = _load(_named(flag), files)
        if not choice.path.is_absent or not choice.stage.is_absent:
            return choice
    if profile is None:
        return ConfigChoice()
    texts = [fact.get() for fact in profile.config_paths]
    if len(set(texts)) == 1 and not profile.config_docs:
        return _load(Named(texts[0], profile.config_paths[0].origins[0]), files)
    if texts:
        return ConfigChoice(path=unknown("the script names several configs"))
    docs = profile.config_docs
    if docs and not profile.config_dests and not command.may_hide_flags():
        if len(docs) > 1:
            return ConfigChoice(path=unknown("the script has several configs"))
        place = docs[0].value("")
        return ConfigChoice(Named(docs[0].name, place), known(docs[0].name, place), docs[0], stage_of(docs[0]))
    return _from_default(command, profile, files)


def _from_default(command: LaunchCommand, profile: ScriptProfile, files: Files) -> ConfigChoice:
    for dest in dict.fromkeys((*profile.config_dests, *_CONFIG_DESTS)):
        declared = profile.options.get(dest)
        default = declared.default if declared is not None else None
        if default is None or not default.is_known or not isinstance(default.value, str):
            continue
        if command.may_hide_flags():
            return ConfigChoice(path=unknown("the command may name another config"))
        if default.value.endswith(SUFFIXES):
            return _load(Named(default.value, default.origins[0]), files)
    return ConfigChoice()


def _named(flag: Flag) -> Named | None:
    if flag.value is None or flag.value.text is None:
        return None
    word = flag.value
    # In ``"${ARGS[@]}"`` the path stands where the array is written.
    place = word.origins[0] if word.origins and "[@]" in word.raw else word.location
    return Named(flag.value.text, place, word.raw)


def _missing(named: Named, files: Files) -> tuple[Named, ...]:
    """The name, when nothing suggests that the file is made, fetched or mounted before the run."""
    if may_appear(files, named.text, named.raw, named.location.path):
        return ()
    return (replace(named, is_start=files.workspace.is_start, has_siblings=_has_siblings(named.text, files)),)


def _has_siblings(text: str, files: Files) -> bool:
    """Whether the folder of a file that is nowhere is in the project, and holds other files of its kind."""
    folder, name = posixpath.split(text)
    if not folder.strip("./"):
        return False
    kind = posixpath.splitext(name)[1]
    places = {files.workspace.normal(posixpath.join(base, folder)) for base in files.folders}
    found = (
        path for place in sorted(places) for path in files.workspace.files_below(place, frozenset(), _MOST_SIBLINGS)
    )
    return any(posixpath.dirname(path) in places and path.endswith(kind) for path in found)


def _left(named: Named, files: Files) -> tuple[Named, ...]:
    """The name, when ``cd`` has left the file behind."""
    left = left_behind(files, named.text)
    return _missing(replace(named, left=left), files) if left is not None else ()


def named_config(text: str, place: Location, files: Files) -> ConfigChoice:
    """The config of a name that stands at a place of a script."""
    return _load(Named(text, place), files)


def _load(named: Named | None, files: Files) -> ConfigChoice:
    """The config of this name, and the name once more where the command will not find it."""
    if named is None:
        return ConfigChoice(path=unknown("the name of the config is not known here"))
    found = _loaded(named, files)
    return replace(found, missing=_left(named, files)) if found.path.is_known else found


def _is_json_file(path: str, files: Files) -> bool:
    """A file of another name (``ds.conf``, ``zero2.yaml``) that holds a JSON object: its readers ask for no suffix."""
    if path.endswith((".py", ".toml", ".sh")):
        return False
    source = files.workspace.read(path)
    doc = files.workspace.json(path) if source is not None and source.text.lstrip()[:1] == "{" else None
    return doc is not None and isinstance(doc.data, dict) and not doc.problems


def _written(named: Named, path: str | None, files: Files) -> DataDoc | None:
    """The config that the launch file writes, where all of its commands that may write it are read."""
    found = files.written_config(named.text)
    if found is None or (path is not None and not found.steps):
        return None
    return found.doc if writes(files, named.text, named.raw) <= max(found.steps, 1) else None


def _loaded(named: Named, files: Files) -> ConfigChoice:
    path = files.find(named.text)
    written = _written(named, path, files)
    if written is not None and isinstance(written.data, dict) and not written.problems:
        return ConfigChoice(named, known(written.name, named.location), written, stage_of(written))
    if path is None or not (path.endswith(SUFFIXES) or _is_json_file(path, files)):
        preset = _PRESET.match(named.text)
        if preset:
            return ConfigChoice(named, stage=known(int(preset.group(1)), named.location))
        if named.text.endswith(SUFFIXES):
            return ConfigChoice(named, path=unknown("the config is not found"), missing=_missing(named, files))
        return ConfigChoice(path=absent() if path is None else unknown("the config is no JSON file"))
    if is_written(files, named.text, named.raw):
        return ConfigChoice(named, path=unknown("the launch script writes the config itself"))
    doc = files.workspace.json(path)
    if doc is None or not isinstance(doc.data, dict) or doc.problems:
        return ConfigChoice(named, path=known(path, named.location))
    return ConfigChoice(named, known(path, named.location), doc, stage_of(doc))
