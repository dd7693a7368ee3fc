"""The class of layers by which FSDP is told to wrap a model, beside the classes that the model has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from dslint.core.fact import Fact
from dslint.core.schemafiles import load_file
from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.plan.files import Files
from dslint.model.plan.scriptrun import imported_sources
from dslint.parse.data import DataDoc

_OPTIONS = ("--fsdp_transformer_layer_cls_to_wrap", "--transformer_layer_cls_to_wrap")
_KEYS = (
    "/fsdp_config/fsdp_transformer_layer_cls_to_wrap",
    "/fsdp_config/transformer_layer_cls_to_wrap",
    "/fsdp_transformer_layer_cls_to_wrap",
    "/transformer_layer_cls_to_wrap",
)
_MODELS = (
    "--model_name_or_path",
    "--model_name",
    "--model_id",
    "--base_model",
    "--model",
    "--model_path",
    "--base_model_name_or_path",
    "--pretrained_model_name_or_path",
)
_LOADED = re.compile(r"\.from_pretrained\(\s*[\"']([\w./-]+)[\"']")
_NAMED = re.compile(r"^[A-Z_]*MODEL[A-Z_]*\s*=\s*[\"']([\w.-]+/[\w.-]+)[\"']", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LayerClass:
    """A class that the model does not have. ``meant``: classes that it has; ``model``: its name, where known."""

    name: str
    location: Location
    meant: tuple[str, ...]
    model: str = ""
    places: tuple[Location, ...] = ()


def wrong_layer_class(
    command: LaunchCommand,
    script: str | None,
    docs: tuple[DataDoc | None, ...],
    given: Mapping[str, Fact[object]],
    files: Files,
) -> LayerClass | None:
    """The class that a command or its config names and the model does not have; ``None`` where nobody can say."""
    for name, place in _named(command, docs, files):
        texts = list(imported_sources(script, files.workspace, 3, 60)) if script is not None else []
        if any(re.search(rf"\bclass {re.escape(name)}\b", text.text) for text in texts):
            continue
        found = _judged(name, place, _model(command, given, texts))
        if found is not None:
            return found
    return None


def _judged(name: str, place: Location, model: tuple[str, Location] | None) -> LayerClass | None:
    layers = _layers()
    owners = {family for family, classes in layers.items() if name in classes}
    if not owners:
        same = {cls for classes in layers.values() for cls in classes if cls.lower() == name.lower()}
        return LayerClass(name, place, tuple(sorted(same))) if same else None
    family = _family(model[0]) if model is not None else ""
    if model is None or not family or family in owners or family not in layers:
        return None
    return LayerClass(name, place, tuple(layers[family]), model[0], (model[1],))


def _named(command: LaunchCommand, docs: tuple[DataDoc | None, ...], files: Files) -> Iterator[tuple[str, Location]]:
    """The classes, with their places: of the options, else of the configs."""
    for flag in (command.launcher_flag(*_OPTIONS), command.script_flag(*_OPTIONS)):
        if flag is not None and flag.value is not None and flag.value.text:
            yield from _split(flag.value.text, flag.value.location)
            return
    named = command.script_flag("--fsdp_config")
    path = files.find(named.value.text) if named is not None and named.value is not None and named.value.text else None
    own = files.data(path) if path is not None else None
    for doc in (*docs, own):
        for key in _KEYS if doc is not None else ():
            value = doc.get(key) if doc is not None else None
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and doc is not None:
                    yield from _split(text, doc.value(key))


def _split(text: str, place: Location) -> Iterator[tuple[str, Location]]:
    for part in text.split(","):
        if re.fullmatch(r"[A-Za-z_]\w*", part.strip()):
            yield part.strip(), place


def _model(
    command: LaunchCommand, given: Mapping[str, Fact[object]], texts: list[SourceFile]
) -> tuple[str, Location] | None:
    """The one checkpoint that the command, else the script names."""
    flag: Flag | None = command.script_flag(*_MODELS)
    if flag is not None:
        text = flag.value.text if flag.value is not None else None
        return (text, flag.location) if text else None
    for option in _MODELS:
        fact = given.get(option.lstrip("-"))
        if fact is not None:
            text = fact.value if fact.is_known and isinstance(fact.value, str) else None
            return (text, fact.origins[0]) if text and fact.origins else None
    found = {
        match[1]: text.location(Span(match.start(1), match.end(1)))
        for text in texts
        for pattern in (_LOADED, _NAMED)
        for match in pattern.finditer(text.text)
    }
    return next(iter(found.items())) if len(found) == 1 else None


def _family(name: str) -> str:
    """The model of transformers that a checkpoint of this name is; empty where nobody can say."""
    data = load_file("transformer_layers.json")
    last = name.rstrip("/").rpartition("/")[2].lower()
    if re.search(data["other"], last):
        return ""
    fits = [family for family, pattern in data["names"].items() if re.match(pattern, last)]
    return fits[0] if len(fits) == 1 else ""


@cache
def _layers() -> dict[str, list[str]]:
    """The layers of the models of transformers, and of those whose code comes with the checkpoint."""
    data = load_file("transformer_layers.json")
    return {**data["layers"], **data["remote"]}
